"""`revelator score`: an adapter's answers to the rows of one or more sets, and how far they reach each target."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table

from evaluation.adapters.targets import Reached, reached, same_answer
from evaluation.commands import AS_JSON, BASE, FOLDER, HOME, REGISTERED, SPLIT, THREADS, URI, adapter_folder
from evaluation.facts import made_by
from evaluation.sections import put, text_with
from revelator.artifact import read_manifest
from revelator.durable import sha256_file, sha256_text
from revelator.registry import CHAMPION
from serving.protocols import DECODINGS, Decoding


@click.command()
@click.argument("adapter", default=CHAMPION)
@click.option("--set", "sets", type=FOLDER, multiple=True, required=True, help="Instruction set; may be given again.")
@SPLIT
@click.option("--limit", type=click.IntRange(1), help="Rows a task and set, the first by hash.  [default: all]")
@click.option("--world", type=FOLDER, help="World of a set: a next question with gold's answer is counted, too.")
@click.option("--results", type=FOLDER, help="Page of results: the table goes into its section of the set's name.")
@click.option(
    "--decoding", type=click.Choice(DECODINGS), default="beams", show_default=True, help="How plans are written."
)
@BASE
@THREADS
@REGISTERED
@HOME
@URI
@AS_JSON
def score(
    adapter: str,
    sets: tuple[Path, ...],
    split: str,
    limit: int | None,
    world: Path | None,
    results: Path | None,
    decoding: Decoding,
    base: str | None,
    threads: int | None,
    name: str,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Print what an adapter reaches of each target, with its reference, n and 95 % interval.

    ADAPTER is a folder, a version number, `latest`, an alias (default: champion), or `base` for the base alone.
    One answer a row, as a server gives it; rows are kept below HOME/scores, so that a run that was broken off goes on.

    \b
    Examples:
      revelator score --set runs/real/sets/real
      revelator score runs/adapters/mine --set runs/sets/real --set runs/sets/world --split dev --json
      revelator score base --set runs/sets/world --world runs/world --limit 100 --decoding free
    """
    from evaluation.adapters.predictions import predict, read_predicted
    from serving.models.engine import Engine
    from serving.models.revelator_model import complete
    from training.answers import read_answers
    from training.instructions import verify_set

    answers = read_answers(world) if world else {}
    folder, _ = adapter_folder(adapter, name, home, tracking_uri)
    manifests = [verify_set(each) for each in sets]
    if results:
        if len(sets) > 1:
            raise click.UsageError("--results takes the table of one set: give --set once")
        text_with(results, manifests[0]["config"]["name"])
    named = base or (read_manifest(folder).base_name if folder else "tiny")
    engine = Engine(named, folder, threads=threads)
    made = [sha256_file(path / "manifest.json") for path in (*([folder] if folder else []), *sets)]
    key = "".join([engine.base_digest, *made, split, decoding, str(limit)])
    out = home / "scores" / sha256_text(key)[:12]
    for each in sets:
        say = f"{each.name} " if len(sets) > 1 else ""
        predict(each, out, lambda task, prompts: complete(engine, task, prompts, decoding=decoding), split, limit, say)
    rows = read_predicted(out)
    lines = [*reached(rows), *([same_answer(rows.texts, answers)] if answers else [])]
    if results:
        digests = {"adapter": made[0] if folder else "", "base": engine.base_digest, "set": manifests[0]["digest"]}
        put(results, manifests[0]["config"]["name"], section(lines, digests))
    if as_json:
        click.echo(json.dumps([line.to_json() for line in lines], ensure_ascii=False))
    else:
        Console().print(targets_table(lines, f"{adapter} on {split}, decoding {decoding}"))
        click.echo(f"every row: {out}")


def section(lines: list[Reached], digests: dict[str, str]) -> str:
    """The table for a page of results, below what it was made of, by which command and where."""
    from evaluation.chains.results import targets_table as in_markdown

    return f"{made_by('revelator', digests)}\n\n{in_markdown(lines)}"


def targets_table(lines: list[Reached], title: str) -> Table:
    task = Column("task", no_wrap=True)
    table = Table(task, "set", "measure (reference)", "target", "value", "n", "95 %", title=title)
    for line in lines:
        style = "" if line.target is None else "green" if line.value >= line.target else "red"
        wanted = "–" if line.target is None else f"{line.target:.2f}"
        value, between = f"{line.value:.3f}", f"{line.low:.3f} to {line.high:.3f}"
        measure = f"{line.measure} ({line.reference})" if line.reference else line.measure
        cells = (line.task, line.source or "all", measure, wanted)
        table.add_row(*cells, f"[{style}]{value}[/]" if style else value, f"{line.n:,}", between)
    return table
