"""The command `revelator eval run`."""

from __future__ import annotations

import json
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from revelator.errors import ConfigError
from revelator.options import FOLDER

OUT_HELP = "The run's folder, or that of several runs.  [default: runs/evaluations/NAME of CONFIG]"


@click.command()
@click.argument("config", type=FOLDER)
@click.option("--out", type=FOLDER, help=OUT_HELP)
@click.option("--run", "names", multiple=True, help="Of several runs this one; can be given more than once.")
@click.option("--url", help="Ask the running Triton at this gRPC address instead of this process.")
@click.option("--sample", type=click.IntRange(1), help="Only the first so many questions by the sha256 of their id.")
@click.option("--concurrency", type=click.IntRange(1), help="Questions in flight.")
@click.option("--adapter", help="Folder, version, alias, or `base`.")
@click.option("--seed", type=int, help="Of what is sampled.")
@click.option("--check", is_flag=True, help="Look at everything that is needed; ask nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object a run to standard output.")
def evaluate(config: Path, out: Path | None, names: tuple[str, ...], check: bool, as_json: bool, **given: Any) -> None:
    """Ask one system every question of a benchmark, and write down answers, scores and costs.

    CONFIG names benchmark, system, index and switches; evaluation/configs has examples. Run the same command again to
    continue an interrupted run: only the questions in flight are asked again. Options replace values of CONFIG.

    With `runs`, CONFIG is a comparison: several named systems or switches, each with a folder of its own. All of them
    are checked before the first question is asked, and they share index and model.

    \b
    Examples:
      revelator eval run evaluation/configs/world.yaml --out runs/evaluations/world
      revelator eval run evaluation/configs/musique.yaml --sample 50 --concurrency 4
      revelator eval run evaluation/configs/world.yaml --url 127.0.0.1:8001 --out runs/evaluations/served
      revelator eval run evaluation/configs/world-naive-5.yaml --check
      revelator eval run evaluation/configs/compare-world.yaml --sample 20 --out runs/compare/world
      revelator eval run evaluation/configs/compare-world.yaml --run auto --run naive-5
    """
    from evaluation.harness.benchmarks import open_benchmark
    from evaluation.harness.config import load_runs
    from evaluation.harness.run import prepare_run, run_questions
    from evaluation.harness.run_metrics import write_metrics
    from evaluation.harness.systems import SharedModels
    from evaluation.rows import progress_bar

    if config.suffix not in (".yaml", ".yml"):
        hint = f"an adapter's scores, task by task: revelator model grade {config}"
        raise ConfigError(f"{config} is no configuration file (.yaml)", hint=hint)
    runs, folder = load_runs(config, **given), out or Path("runs") / "evaluations" / config.stem
    if unknown := [name for name in names if name not in runs]:
        known = ", ".join(filter(None, runs))
        hint = f"runs: {known}" if known else "it holds one run, without a name: leave --run out"
        raise ConfigError(f"there is no run {unknown[0]!r}", where=str(config), hint=hint)
    command, read = shlex.join(["revelator", *sys.argv[1:]]), cache(open_benchmark)
    chosen = {name: settings for name, settings in runs.items() if not names or name in names}
    prepared = {name: prepare_run(settings, command, read) for name, settings in chosen.items()}
    console, shared = Console(stderr=True), SharedModels()
    for name, (settings, run, benchmark) in prepared.items():
        about = f"{run.name} on {len(run.ids):,} questions of {benchmark.name}"
        if check:
            click.echo(f"{about}: everything fits; nothing was asked")
            continue
        console.print(f"{about} → {folder / name}", highlight=False)
        with progress_bar() as progress:
            run_questions(settings, run, benchmark, folder / name, progress, shared)
        metrics = write_metrics(folder / name, run)
        if as_json:
            said = {"run": str(folder / name), "system": run.name, "benchmark": benchmark.name}
            click.echo(json.dumps(said | metrics))
        else:
            Console().print(build_metrics_table(metrics, f"{run.name} on {benchmark.name} ({metrics['normaliser']})"))
    if not (check or as_json):
        shown = folder if "" in chosen else folder / "*"
        click.echo(f"every question: {folder}\ncompare runs: revelator eval report {shown}")


def build_metrics_table(metrics: dict[str, Any], title: str) -> Table:
    from evaluation.harness.run_metrics import COSTS, SCORES

    table = Table("measure", "value", "95 %", "n", title=title, title_justify="left")
    for name, label in (SCORES | COSTS | {"error": "refused"}).items():
        if (figure := metrics["figures"].get(name)) and (name != "error" or figure["value"]):
            between = f"{figure['low']:.3f} to {figure['high']:.3f}"
            table.add_row(label, f"{figure['value']:.3f}", between, f"{figure['n']:,}")
    return table
