"""`revelator data leaks`: whether any text of finished sets is a question that is held out for measuring.

A build drops such questions as it reads them (`data_gen.leakage`); this looks at what was written, whoever wrote it:
the question of each record, and of its prompt and completion every line and every part that ends in a question mark.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from revelator.errors import DataError
from revelator.terminal import printable

COLUMNS = ["id", "question", "prompt", "completion"]
LABEL = re.compile(r"^[A-Z][a-z]+: ", re.MULTILINE)  # how a line of a prompt says what it holds
ASKED = re.compile(r"[^?\n*+()]+\?")


def texts(record: dict[str, str]) -> Iterator[str]:
    """Every text of a record that could be a question."""
    yield record["question"]
    for written in (LABEL.sub("", record["prompt"]), record["completion"]):
        yield from written.splitlines()
        yield from ASKED.findall(written)


def read(folder: Path, files: Iterable[str]) -> Iterator[dict[str, str]]:
    """The records of a set's files, of this release or an earlier one."""
    import pyarrow.parquet as parquet

    for file in (parquet.ParquetFile(folder / name) for name in files if name.endswith(".parquet")):
        if missing := set(COLUMNS) - set(file.schema_arrow.names):
            raise DataError(f"no column {min(missing)}", where=str(folder), hint="this is no instruction set")
        for batch in file.iter_batches(batch_size=2_000, columns=COLUMNS):
            yield from batch.to_pylist()


@click.command(name="leaks")
@click.argument("sets", metavar="SET...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--held-out", required=True, type=click.Path(path_type=Path), help="Hashes of the held-out questions.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and the ids of records as JSON.")
def leaks_command(sets: tuple[Path, ...], held_out: Path, as_json: bool) -> None:
    """Look for held-out questions in instruction sets: in questions, prompts and completions.

    The exit status is 1 if there are any.

    \b
    Examples:
      revelator data leaks runs/sets/real --held-out ../shared/data/held_out.sha256
      revelator data leaks runs/sets/* --held-out held_out.sha256 --json
    """
    from rich.console import Console
    from rich.progress import track

    from data_gen.instruction_set import read_manifest
    from data_gen.leakage import leaks, load_held_out

    held, found, looked = load_held_out(held_out), [], Counter[str]()
    for folder in sets:
        manifest, console = read_manifest(folder), Console(stderr=True)
        total = sum(manifest["records"].values())
        for record in track(read(folder, manifest["files"]), str(folder), total, console=console, transient=True):
            looked.update(records=1)
            for text in texts(record):
                looked.update(texts=1)
                if name := leaks(held, text):
                    found.append({"set": str(folder), "id": record["id"], "held_out": name, "text": text})
    if as_json:
        click.echo(json.dumps({**looked, "hashes": len(held), "found": found}, ensure_ascii=False))
    else:
        for leak in found:
            click.echo(printable(f"{leak['set']}: {leak['id']}: {leak['held_out']}: {leak['text']}"))
        click.echo(f"{looked['records']:,} records, {looked['texts']:,} texts: {len(found):,} held out ({held_out})")
    sys.exit(bool(found))
