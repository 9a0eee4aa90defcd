"""`revelator evaluate`: one system on one benchmark, into a folder that holds every answer, score and cost."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from revelator.errors import ConfigError

FOLDER = click.Path(path_type=Path)
SHOWN = {
    "em": "EM",
    "acc": "Acc",
    "f1": "F1",
    "route": "route",
    "valid": "plan valid",
    "letters": "plan letters",
    "recall@10": "recall@10",
    "ndcg@10": "nDCG@10",
    "steps": "steps",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "model_calls": "revelator prompts",
    "generator_calls": "generator calls",
    "retrievals": "retrievals",
    "wall_s": "wall (s)",
    "path_s": "critical path (s)",
    "error": "refused",
}


@click.command()
@click.argument("config", type=FOLDER)
@click.option("--out", type=FOLDER, help="The run's folder.  [default: runs/evaluations/NAME of CONFIG]")
@click.option("--url", help="Ask the running Triton at this gRPC address instead of this process.")
@click.option("--sample", type=click.IntRange(1), help="Only the first so many questions by the sha256 of their id.")
@click.option("--concurrency", type=click.IntRange(1), help="Questions in flight.")
@click.option("--adapter", help="Folder, version, alias, or `base`.")
@click.option("--seed", type=int, help="Of what is sampled.")
@click.option("--check", is_flag=True, help="Look at everything that is needed; ask nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")
def evaluate(config: Path, out: Path | None, check: bool, as_json: bool, **given: Any) -> None:
    """Ask one system every question of a benchmark, and write down answers, scores and costs.

    CONFIG names benchmark, system, index and switches; evaluation/configs has examples. A run that was broken off
    goes on: only the questions in flight are asked again. Options stand in for values of CONFIG.

    \b
    Examples:
      revelator evaluate evaluation/configs/world.yaml --out runs/evaluations/world
      revelator evaluate evaluation/configs/musique.yaml --sample 50 --concurrency 4
      revelator evaluate evaluation/configs/world.yaml --url 127.0.0.1:8001 --out runs/evaluations/served
      revelator evaluate evaluation/configs/world-naive-5.yaml --check
    """
    from evaluation.harness.config import load
    from evaluation.harness.run import carry_out, prepare
    from evaluation.harness.run_metrics import write_metrics
    from evaluation.rows import progress_bar

    if config.suffix not in (".yaml", ".yml"):
        hint = f"an adapter's scores, task by task: revelator grade {config}"
        raise ConfigError(f"{config} is no configuration file (.yaml)", hint=hint)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    settings, folder = load(config, **given), out or Path("runs") / "evaluations" / config.stem
    run, benchmark = prepare(settings, shlex.join(["revelator", *sys.argv[1:]]))
    if check:
        click.echo(f"{run.name} on {len(run.ids):,} questions of {benchmark.name}: everything fits; nothing was asked")
        return
    console = Console(stderr=True)
    console.print(f"{run.name} on {len(run.ids):,} questions of {benchmark.name} → {folder}", highlight=False)
    with progress_bar() as progress:
        carry_out(settings, run, benchmark, folder, progress)
    metrics = write_metrics(folder, run)
    if as_json:
        click.echo(json.dumps({"run": str(folder), "system": run.name, "benchmark": benchmark.name, **metrics}))
    else:
        Console().print(metrics_table(metrics, f"{run.name} on {benchmark.name} ({metrics['normaliser']})"))
        click.echo(f"every question: {folder}\ncompare runs: revelator report {folder} …")


def metrics_table(metrics: dict[str, Any], title: str) -> Table:
    table = Table("measure", "value", "95 %", "n", title=title, title_justify="left")
    for name, label in SHOWN.items():
        if (figure := metrics["figures"].get(name)) and (name != "error" or figure["value"]):
            between = f"{figure['low']:.3f} to {figure['high']:.3f}"
            table.add_row(label, f"{figure['value']:.3f}", between, f"{figure['n']:,}")
    return table
