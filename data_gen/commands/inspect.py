"""The command `revelator data inspect`: what a set holds, what changed from another, and what leaked."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    track,
)

from data_gen.inspection import (
    choose_samples,
    compare_sets,
    measure_set,
    read_texts,
    show_diff,
    show_set,
)
from data_gen.leakage import find_leak, load_held_out
from revelator.errors import ArtifactError, DataError
from revelator.options import AS_JSON, PATH
from revelator.rows import SET
from revelator.terminal import mask_controls


@click.command()
@click.argument("places", metavar="SET...", nargs=-1, required=True, type=PATH)
@click.option("--split", type=click.Choice(["train", "dev", "test"]), help="The split to show.  [default: train]")
@click.option("--against", metavar="OLD", type=PATH, help="Show what changed from this set, in all splits.")
@click.option("--held-out", metavar="FILE", type=PATH, help="Look for the questions of these hashes, in all splits.")
@AS_JSON
def inspect(
    places: tuple[Path, ...], split: str | None, against: Path | None, held_out: Path | None, as_json: bool
) -> None:
    """Show the data card of a set, routes and lengths of a split, and three records of each task.

    With --against, show what changed from the set OLD: configuration, hashes of prompts, grammar and inputs, records
    added, removed and kept by task and source, and, as a warning, questions that stand in another split. The exit
    status is then that of diff(1): 0 for no difference, 1 for some, 2 for trouble.

    With --held-out, look for held-out questions in all that training reads: of sets, questions, prompts and
    completions; of a world or a teacher's folder, its questions.jsonl; of a file of rows (JSON lines or array, CSV,
    parquet), every text. The exit status is then 1 if there are any.

    \b
    Examples:
      revelator data inspect runs/sets/real
      revelator data inspect runs/sets/real --split dev --json
      revelator data inspect runs/sets/new --against runs/sets/old
      revelator data inspect runs/sets/new --against runs/sets/old --json | jq .records
      revelator data inspect runs/sets/* runs/world corpus.jsonl.gz --held-out held_out.sha256
    """
    if split and (against or held_out):
        raise click.UsageError("--against and --held-out read all splits: leave --split out")
    if held_out and against:
        raise click.UsageError("give one of --against and --held-out")
    if held_out:
        _look_for_leaks(places, held_out, as_json)
        return
    if len(places) > 1:
        raise click.UsageError("give one SET, or several with --held-out")
    [folder] = places
    if against is None:
        _show_samples(folder, split or "train", as_json)
        return
    try:
        found = compare_sets(against, folder)
    except (ArtifactError, DataError) as error:
        error.exit_status = 2
        raise
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        show_diff(Console(), found)
    sys.exit(not found["same"])


def _look_for_leaks(places: Sequence[Path], held_out: Path, as_json: bool) -> None:
    held, looked, console = load_held_out(held_out), Counter(records=0, texts=0), Console(stderr=True)
    if not held:
        raise DataError("no hashes stand there", where=str(held_out), hint="give a file of lines `sha256  name`")
    found: list[dict[str, str]] = []
    for place in places:
        records, total = read_texts(place)
        for name, written in track(records, str(place), total, console=console, transient=True):
            looked.update(records=1)
            for text in written:
                looked.update(texts=1)
                if held_by := find_leak(held, text):
                    found.append({"set": str(place), "id": name, "held_out": held_by, "text": text})
                    if not as_json:  # at once: a later row may end the command
                        click.echo(mask_controls(f"{place}: {name}: {held_by}: {text}"))
    if as_json:
        click.echo(json.dumps({**looked, "hashes": len(held), "found": found}, ensure_ascii=False))
    else:
        click.echo(f"{looked['records']:,} records, {looked['texts']:,} texts: {len(found):,} held out ({held_out})")
    sys.exit(bool(found))


def _show_samples(folder: Path, split: str, as_json: bool) -> None:
    manifest = SET.read_manifest(folder, verify=True)
    chosen, measured = choose_samples(folder, split), measure_set(folder, split)
    if as_json:
        shown = {name: [asdict(record) for record in records] for name, records in chosen.items()}
        keys = ("digest", "records", "counts", "labels", "questions", "dropped")
        click.echo(
            json.dumps({**{key: manifest[key] for key in keys}, **measured, "samples": shown}, ensure_ascii=False)
        )
    else:
        show_set(Console(), folder, chosen, measured)
