"""The command group `revelator data`: making worlds and instruction sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from data_gen.teacher.commands import compound, teach
from revelator.errors import DataError
from revelator.tasks import TASKS


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Turns whatever keeps files from being written to `out` into one clear error."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot be written: {error.strerror or error}",
            where=str(out),
            hint="free space, or name another folder; what stood there before is unchanged",
        ) from error


@click.group()
def data() -> None:
    """Make synthetic worlds and instruction sets.

    \b
    Examples:
      revelator data world --size 2000 --seed 7 --out runs/world
      REVELATOR_WORLD=runs/world revelator data build data_gen/configs/world.yaml --out runs/sets/world
      revelator data inspect runs/sets/world
    """


@data.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the set; replaces a set there.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def build(config: Path, out: Path, as_json: bool) -> None:
    """Build an instruction set from annotated questions.

    CONFIG names sources, splits and bounds. Malformed rows are listed and counted; a broken file stops the build and
    leaves OUT as it was.

    \b
    Examples:
      revelator data build data_gen/configs/real.yaml --out runs/sets/real
      REVELATOR_WORLD=runs/world revelator data build data_gen/configs/world.yaml --out runs/sets/world
      REVELATOR_DATA=~/data revelator data build real.yaml --out sets/real --json
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    from data_gen.build import build as build_set
    from data_gen.config import load_config
    from data_gen.inspection import counts_table, dropped_table

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,} rows"),
        TimeElapsedColumn(),
    )
    with _writing(out), Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(source: str, rows: int) -> None:
            if source not in tasks:
                tasks[source] = bars.add_task(escape(Path(source).name), total=None)
            bars.update(tasks[source], completed=rows)

        manifest = build_set(load_config(config), out, progress)
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
    """Show the counts of a set and some of its records.

    \b
    Examples:
      revelator data inspect runs/sets/real
      revelator data inspect runs/sets/real --task translate_bnf --split dev --n 20
    """
    from rich.console import Console

    from data_gen.inspection import samples, show
    from data_gen.instruction_set import read_manifest

    manifest = read_manifest(folder)
    chosen = samples(folder, split, task, count)
    if as_json:
        shown = {name: [asdict(record) for record in records] for name, records in chosen.items()}
        keys = ("digest", "records", "counts", "labels", "questions", "dropped")
        click.echo(json.dumps({**{key: manifest[key] for key in keys}, "samples": shown}, ensure_ascii=False))
    else:
        show(Console(), manifest, chosen)


@data.command()
@click.option("--size", required=True, type=int, help="Number of questions, at least 20.")
@click.option("--seed", default=0, show_default=True, type=int, help="The same size and seed give the same bytes.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the world; replaced as a whole.")
@click.option("--force", is_flag=True, help="Replace OUT even if it holds something other than a world.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def world(size: int, seed: int, out: Path, force: bool, as_json: bool) -> None:
    """Generate a synthetic world: documents, triples, and questions with gold plans.

    \b
    Examples:
      revelator data world --size 2000 --seed 7 --out runs/world
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
    with _writing(out), Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("questions", total=max(size, 1))
        manifest = generate(size, seed, out, force=force, progress=lambda n: bar.update(task, advance=n))
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    counts = manifest["counts"]
    click.echo(f"{out}: {size:,} questions, {manifest['passages']:,} passages, {len(counts['shape'])} plan shapes")
    for what in ("split", "route"):
        click.echo(f"  {what}: " + ", ".join(f"{name} {number:,}" for name, number in counts[what].items()))


data.add_command(teach)
data.add_command(compound)
