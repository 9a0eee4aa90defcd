"""Looking into finished sets: sample records and their lengths, as tables on a terminal; and held-out questions.

Held-out questions: a build drops them as it reads (`data_gen.leakage`); this module looks for them in what was written,
whoever wrote it. It reads the question, prompt and completion of each record of a set, and every text of a world (GRPO
runs plans over its questions) or of a file of rows: the whole text, its lines, and each part that ends in a question
mark.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

from data_gen.questions import QUESTIONS
from data_gen.sources.files import MalformedRow, read_file_rows
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.rows import (
    MANIFEST,
    SPLITS,
    Row,
    read_columns,
    read_manifest,
    stream_rows,
)
from revelator.tasks import TASKS
from revelator.terminal import mask_controls, to_markup


def choose_samples(folder: Path, split: str, task: str | None, count: int) -> dict[str, list[Row]]:
    """`count` records a task, drawn by the hash of their id: the same ones at every look."""
    return {
        name: heapq.nsmallest(count, stream_rows(folder, split, name), key=lambda record: sha256_text(record.id))
        for name in ([task] if task else TASKS)
    }


def measure_set(folder: Path, split: str) -> dict[str, Any]:
    """Routes of a split by how many questions have them, and of each task the median and longest prompt and completion
    in characters."""
    found: dict[str, Any] = {"routes": Counter[str](), "lengths": {}}
    sizes: dict[str, list[tuple[int, int]]] = {}
    for row in stream_rows(folder, split):
        sizes.setdefault(row.task, []).append((len(row.prompt), len(row.completion)))
        if row.task == "route":
            found["routes"][row.label] += 1
    for task in filter(sizes.get, TASKS):
        middle, longest = np.median(sizes[task], axis=0), np.max(sizes[task], axis=0)
        names = ("prompt", "completion")
        found["lengths"][task] = {
            name: {"median": int(middle[i]), "longest": int(longest[i])} for i, name in enumerate(names)
        }
    return found | {"routes": dict(found["routes"].most_common())}


def show_set(console: Console, folder: Path, chosen: dict[str, list[Row]], measured: Mapping[str, Any]) -> None:
    """The data card of a set, what `measure_set` says of it, then the chosen records."""
    console.print(Markdown(mask_controls((folder / "README.md").read_text(encoding="utf-8"))))
    routes = ", ".join(f"{route} {count:,}" for route, count in measured["routes"].items())
    console.print(f"routes: {routes or 'none'}")
    table = Table("task", "prompt: median", "longest", "completion: median", "longest", title="Lengths in characters")
    for task, each in measured["lengths"].items():
        cells = [f"{each[part][name]:,}" for part in ("prompt", "completion") for name in ("median", "longest")]
        table.add_row(task, *cells)
    console.print(table)
    for task, records in chosen.items():
        for record in records:
            about = " · ".join(x for x in (task, record.source, record.shape, record.id) if x)
            text = f"{to_markup(record.prompt)}[bold green]{to_markup(record.completion)}[/]"
            console.print(Panel(text, title=to_markup(about), title_align="left"))


def tabulate_counts(manifest: dict[str, Any]) -> Table:
    """Records by task and split, as the manifest counts them."""
    by_split = manifest["counts"]["task"]
    table = Table("task", *by_split, title=f"{to_markup(manifest['config']['name'])}  digest {manifest['digest'][:12]}")
    for task in TASKS:
        table.add_row(task, *(f"{counts.get(task, 0):,}" for counts in by_split.values()))
    table.add_row("all", *(f"{manifest['records'][split]:,}" for split in by_split), style="bold")
    return table


def tabulate_dropped(manifest: dict[str, Any]) -> Table:
    """What was left out: reasons with counts, then the malformed rows that are listed."""
    table = Table("left out because", "questions", title="Left out")
    for reason, count in manifest["dropped"].items():
        table.add_row(to_markup(reason), f"{count:,}")
    for row in manifest["refused_rows"]:
        table.add_row(to_markup(f"{row['file']}, line {row['line']}: {row['reason']}"), "")
    return table


TEXT_COLUMNS = ["question", "prompt", "completion"]
LABEL = re.compile(r"^[A-Z][a-z]+: ", re.MULTILINE)  # how a line of a prompt says what it holds
QUESTION_PART = re.compile(r"(?<![^?\n*+()])[^?\n*+()]++\?")  # each run is looked at once, from its start
LEAD_IN = re.compile(r"^.*[.:!\"“]")  # what may stand before a question in its line: a sentence, a quote, a number


def split_text(written: str) -> Iterator[str]:
    """A text as a whole; its lines, without their labels as well; and each part that ends in a question mark, without
    what stands before it as well."""
    yield written
    yield from written.splitlines()
    yield from LABEL.sub("", written).splitlines()
    for part in QUESTION_PART.findall(written):
        yield part.strip()
        yield LEAD_IN.sub("", part).strip()


def list_texts(row: Any) -> Iterator[str]:
    """Every text below a row that could be a question, each once."""
    found: dict[str, None] = {}
    values = [row]
    while values:
        value = values.pop()
        if isinstance(value, str):
            found |= dict.fromkeys(split_text(value))
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            values += value
    yield from found


def read_file(path: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Id (or line) and texts of each row. Raises DataError with the line of a row that cannot be read."""
    for line, row in read_file_rows(str(path)):
        if isinstance(row, MalformedRow):
            raise DataError(row.reason, where=f"{path}, line {line}", hint="mend the row, then look again")
        name = row.get("id") if isinstance(row, dict) else None
        yield str(name or f"line {line}"), list_texts(row)


def read_place(place: Path) -> tuple[Iterator[tuple[str, Iterator[str]]], int | None]:
    """Id and texts of each record, and how many there are where that is known, of a set, a world or a file of rows."""
    if not place.is_dir():
        return read_file(place), None
    if (place / QUESTIONS).is_file():
        return read_file(place / QUESTIONS), None
    if not (place / MANIFEST).is_file():
        hint = "name a set, a world, a teacher's folder, or a file of rows"
        raise DataError(f"neither {MANIFEST} of a set nor {QUESTIONS} of a world", where=str(place), hint=hint)
    manifest = read_manifest(place)
    records = (
        (record.pop("id"), list_texts([*record.values()]))
        for split in SPLITS
        for batch in read_columns(place, split, ["id", *TEXT_COLUMNS])
        for record in batch.to_pylist()
    )
    return records, sum(manifest["records"].values())
