"""`revelator data leaks`: whether any text that training reads is a question that is held out for measuring.

A build drops such questions as it reads them (`data_gen.leakage`); this looks at what was written, whoever wrote it.
Of a set: the question, prompt and completion of each record; of a world, whose questions GRPO runs plans over, and of
any file of rows: each text. Looked at are the whole, its lines, and each part that ends in a question mark.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from data_gen.sources.files import file_rows
from data_gen.sources.json_rows import Malformed
from revelator.errors import DataError
from revelator.terminal import printable

MANIFEST = "manifest.json"
QUESTIONS = "questions.jsonl"  # of a world, or of what a teacher annotated

ASKING = ["question", "prompt", "completion"]
LABEL = re.compile(r"^[A-Z][a-z]+: ", re.MULTILINE)  # how a line of a prompt says what it holds
ASKED = re.compile(r"[^?\n*+()]+\?")
BEFORE = re.compile(r"^.*[.:!\"“]")  # what may stand before a question in its line: a sentence, a quote, a number


def asked(written: str) -> Iterator[str]:
    """A text as a whole; its lines, without their labels as well; and each part that ends in a question mark, without
    what stands before it as well."""
    yield written
    yield from written.splitlines()
    yield from LABEL.sub("", written).splitlines()
    for part in ASKED.findall(written):
        yield part.strip()
        yield BEFORE.sub("", part).strip()


def texts(row: Any) -> Iterator[str]:
    """Every text below a row that could be a question, each once."""
    found: dict[str, None] = {}
    values = [row]
    while values:
        value = values.pop()
        if isinstance(value, str):
            found |= dict.fromkeys(asked(value))
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            values += value
    yield from found


def rows(path: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Id (or line) and texts of each row. Raises DataError with the line of a row that cannot be read."""
    for line, row in file_rows(str(path)):
        if isinstance(row, Malformed):
            raise DataError(row.reason, where=f"{path}, line {line}", hint="mend the row, then look again")
        name = row.get("id") if isinstance(row, dict) else None
        yield str(name or f"line {line}"), texts(row)


def read(folder: Path) -> Iterator[dict[str, str]]:
    """The records of a set of this release or an earlier one."""
    from revelator.rows import SPLITS, read_columns

    for split in SPLITS:
        for batch in read_columns(folder, split, ["id", *ASKING]):
            yield from batch.to_pylist()


def looked_through(place: Path) -> tuple[Iterator[tuple[str, Iterator[str]]], int | None]:
    """Id and texts of each record, and how many there are where that is known, of a set, a world or a file of rows."""
    from revelator.rows import read_manifest

    if not place.is_dir():
        return rows(place), None
    if (place / QUESTIONS).is_file():
        return rows(place / QUESTIONS), None
    if not (place / MANIFEST).is_file():
        hint = "name a set, a world, a teacher's folder, or a file of rows"
        raise DataError(f"neither {MANIFEST} of a set nor {QUESTIONS} of a world", where=str(place), hint=hint)
    manifest = read_manifest(place)
    records = ((record["id"], texts([record[name] for name in ASKING])) for record in read(place))
    return records, sum(manifest["records"].values())


@click.command(name="leaks")
@click.argument("places", metavar="SET|WORLD|FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--held-out", required=True, type=click.Path(path_type=Path), help="Hashes of the held-out questions.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and the ids of records as JSON.")
def leaks_command(places: tuple[Path, ...], held_out: Path, as_json: bool) -> None:
    """Look for held-out questions in what training reads: instruction sets, worlds, files of rows.

    Of a set, questions, prompts and completions; of a world or a teacher's folder, its questions.jsonl; of a FILE (JSON
    lines or array, CSV, parquet), every text. The exit status is 1 if there are any.

    \b
    Examples:
      revelator data leaks runs/sets/real --held-out ../shared/data/held_out.sha256
      revelator data leaks runs/sets/world runs/world --held-out held_out.sha256
      revelator data leaks runs/sets/* corpus.jsonl.gz --held-out held_out.sha256 --json
    """
    from rich.console import Console
    from rich.progress import track

    from data_gen.leakage import leaks, load_held_out

    held, looked, console = load_held_out(held_out), Counter(records=0, texts=0), Console(stderr=True)
    if not held:
        raise DataError("no hashes stand there", where=str(held_out), hint="`sha256  name` a line: docs/your-data.md")
    found: list[dict[str, str]] = []
    for place in places:
        records, total = looked_through(place)
        for name, written in track(records, str(place), total, console=console, transient=True):
            looked.update(records=1)
            for text in written:
                looked.update(texts=1)
                if held_by := leaks(held, text):
                    found.append({"set": str(place), "id": name, "held_out": held_by, "text": text})
                    if not as_json:  # at once: a later row may end the command
                        click.echo(printable(f"{place}: {name}: {held_by}: {text}"))
    if as_json:
        click.echo(json.dumps({**looked, "hashes": len(held), "found": found}, ensure_ascii=False))
    else:
        click.echo(f"{looked['records']:,} records, {looked['texts']:,} texts: {len(found):,} held out ({held_out})")
    sys.exit(bool(found))
