"""The command group `revelator data`: making worlds and instruction sets."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from data_gen.augment.composition import compose_command
from data_gen.inspection import leaks_command
from data_gen.teacher.commands import compound, teach
from data_gen.writing import writing
from revelator.errors import DataError
from revelator.tasks import TASKS

ROUTES = TASKS["route"].labels or ()


@click.group()
def data() -> None:
    """Make synthetic worlds and instruction sets.

    \b
    Examples:
      revelator data world --size 2000 --seed 7 --out runs/world
      REVELATOR_WORLD=runs/world revelator data build data_gen/configs/world.yaml --out runs/sets/world
      revelator data inspect runs/sets/world
      revelator data diff runs/sets/old runs/sets/new
    """


@data.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the set; replaces a set there.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Where it runs."
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes of the local engine.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def build(config: Path, out: Path, engine: str, workers: int, as_json: bool) -> None:
    """Build an instruction set from annotated questions.

    CONFIG names sources, splits and bounds. Malformed rows are listed and counted; a broken file stops the build and
    leaves OUT as it was. One that was killed goes on with the same command. The engine and its workers change how long
    it takes, never the set. The engine `ray` runs on the cluster that RAY_ADDRESS names, on one that was started on
    this machine, or on one made for the build.

    \b
    Examples:
      revelator data build data_gen/configs/real.yaml --out runs/sets/real
      REVELATOR_WORLD=runs/world revelator data build data_gen/configs/world.yaml --out runs/sets/world
      revelator data build large.yaml --out runs/sets/large --workers 2
      RAY_ADDRESS=10.0.0.1:6379 revelator data build large.yaml --out runs/sets/large --engine ray
      REVELATOR_DATA=~/data revelator data build real.yaml --out sets/real --json
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    from data_gen.build import build as build_set
    from data_gen.config import load_config
    from data_gen.engines import named
    from data_gen.inspection import counts_table, dropped_table

    settings, engine_named = load_config(config), named(engine, workers)
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,} rows"),
        TimeElapsedColumn(),
    )
    with writing(out), Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(source: str, rows: int) -> None:
            if source not in tasks:
                tasks[source] = bars.add_task(escape(Path(source).name), total=None)
            bars.update(tasks[source], completed=rows)

        manifest = build_set(settings, out, progress, engine=engine_named)
    if manifest["dropped"]:
        console.print(dropped_table(manifest))
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        Console().print(counts_table(manifest))
        click.echo(f"{out}: data card README.md, manifest.json. Look inside: revelator data inspect {out}")


@data.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--task", type=click.Choice(list(TASKS)))
@click.option("--split", type=click.Choice(["train", "dev", "test"]), default="train", show_default=True)
@click.option("--n", "count", type=click.IntRange(0), default=3, show_default=True, help="Records of each task.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and records as JSON.")
def inspect(folder: Path, task: str | None, split: str, count: int, as_json: bool) -> None:
    """Show the data card of a set and some of its records.

    \b
    Examples:
      revelator data inspect runs/sets/real
      revelator data inspect runs/sets/real --task translate_bnf --split dev --n 20
    """
    from rich.console import Console

    from data_gen.inspection import samples, show
    from revelator.rows import read_manifest

    manifest = read_manifest(folder)
    chosen = samples(folder, split, task, count)
    if as_json:
        shown = {name: [asdict(record) for record in records] for name, records in chosen.items()}
        keys = ("digest", "records", "counts", "labels", "questions", "dropped")
        click.echo(json.dumps({**{key: manifest[key] for key in keys}, "samples": shown}, ensure_ascii=False))
    else:
        show(Console(), folder, chosen)


@data.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--n", "count", type=click.IntRange(0), default=3, show_default=True, help="Records shown of each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def diff(old: Path, new: Path, count: int, as_json: bool) -> None:
    """Say what changed from the set OLD to the set NEW.

    Configuration, hashes of prompts, grammar and inputs, records added, removed and changed, and, as a warning,
    questions that stand in another split. The exit status is that of diff(1): 0 for no difference, 1 for some, 2 for
    trouble.

    \b
    Examples:
      revelator data diff runs/sets/old runs/sets/new
      revelator data diff runs/sets/old runs/sets/new --n 20
      revelator data diff runs/sets/old runs/sets/new --json | jq .records.task
    """
    from rich.console import Console

    from data_gen.diff_view import show_diff
    from data_gen.inspection import diff as differences

    try:
        found = differences(old, new, count)
    except DataError as error:
        error.exit_status = 2
        raise
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        show_diff(Console(), found)
    sys.exit(not found["same"])


@data.command()
@click.option("--size", required=True, type=int, help="Number of questions, at least 20.")
@click.option("--seed", default=0, show_default=True, type=int, help="The same size and seed give the same bytes.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the world; replaced as a whole.")
@click.option("--dev", type=click.IntRange(0), help="Questions in the split dev.  [default: a tenth]")
@click.option("--test", type=click.IntRange(0), help="Questions in the split test.  [default: a tenth]")
@click.option("--route", "routes", multiple=True, type=click.Choice(ROUTES), help="Only these kinds.  [default: all]")
@click.option("--force", is_flag=True, help="Replace OUT even if it holds something other than a world.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def world(
    size: int,
    seed: int,
    out: Path,
    dev: int | None,
    test: int | None,
    routes: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Generate a synthetic world: documents, triples, and questions with gold plans. No two splits share an entity.

    \b
    Examples:
      revelator data world --size 2000 --seed 7 --out runs/world
      revelator data world --route compound --size 60000 --dev 8000 --test 2000 --out runs/compound
      revelator data world --size 50000 --seed 1 --out runs/large --json
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from data_gen.world.generate import generate

    columns = (
        TextColumn("questions"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task("questions", total=size)
    with writing(out), ExitStack() as drawn:

        def progress(made: int) -> None:
            if not bar.live.is_started:
                drawn.enter_context(bar)
            bar.update(task, advance=made)

        manifest = generate(
            size,
            seed,
            out,
            held_back={split: n for split, n in (("dev", dev), ("test", test)) if n is not None},
            routes=routes or ROUTES,
            force=force,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    counts = manifest["counts"]
    click.echo(f"{out}: {size:,} questions, {manifest['passages']:,} passages, {len(counts['shape'])} plan shapes")
    for what in ("split", "route"):
        click.echo(f"  {what}: " + ", ".join(f"{name} {number:,}" for name, number in counts[what].items()))


data.add_command(compose_command)
data.add_command(leaks_command)
data.add_command(teach)
data.add_command(compound)
