"""Looking into finished sets: sample records, what changed from one set to another, and held-out questions.

The difference of two sets: what their manifests say, records, and questions in another split. A record is known by its
id, a question by its normalised text and by the id that its records share (`group`).

Held-out questions: a build drops them as it reads (`data_gen.leakage`); this module looks for them in what was written,
whoever wrote it. It reads the question, prompt and completion of each record of a set, and every text of a world (GRPO
runs plans over its questions) or of a file of rows: the whole text, its lines, and each part that ends in a question
mark.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

from data_gen.leakage import make_question_key, make_text_key
from data_gen.questions import QUESTIONS
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.plans.art import number_nodes, parse
from revelator.row_files import MalformedRow, read_rows
from revelator.rows import SET, SPLITS, Row, stream_rows
from revelator.tasks import TASKS, TRANSLATE_ART
from revelator.terminal import mask_controls, to_markup

SAMPLES = 3  # records of each task that `inspect` shows


def choose_samples(folder: Path, split: str) -> dict[str, list[Row]]:
    """`SAMPLES` records a task, drawn by the hash of their id: the same ones at every look."""
    return {
        name: heapq.nsmallest(SAMPLES, stream_rows(folder, split, name), key=lambda record: sha256_text(record.id))
        for name in TASKS
    }


def measure_set(folder: Path, split: str) -> dict[str, Any]:
    """Routes of a split by how many questions have them, operators of its trees by how many nodes have them, and of
    each task the median and longest prompt and completion in characters."""
    routes, operators = Counter[str](), Counter[str]()
    sizes: dict[str, dict[str, list[int]]] = {}
    for row in stream_rows(folder, split):
        own = sizes.setdefault(row.task, {"prompt": [], "completion": []})
        own["prompt"].append(len(row.prompt))
        own["completion"].append(len(row.completion))
        if row.task == "route":
            routes[row.label] += 1
        elif row.task == TRANSLATE_ART.name:
            operators.update(_list_operators(json.loads(row.gold)))
    lengths = {
        task: {part: {"median": int(median(found)), "longest": max(found)} for part, found in sizes[task].items()}
        for task in filter(sizes.get, TASKS)
    }
    return {"routes": dict(routes.most_common()), "operators": dict(operators.most_common()), "lengths": lengths}


def _list_operators(tree: str) -> Iterator[str]:
    """The operator or the operation of each node of a tree that has no children; `direct` where it has none."""
    for at in number_nodes(parse(tree)):
        if not at.children:
            yield type(at.node.call).__name__ if at.node.call else at.node.operation or "direct"


COMPARED = ("config", "teaching", "grammar_hash", "prompt_hash", "inputs", "dropped", "questions")  # of two manifests
SHOWN = 3  # questions in another split that are shown


def compare_sets(old: Path, new: Path) -> dict[str, Any]:
    """The differences as plain values; `same` says whether there are none.

    `manifest` has the old and the new value of each field (None where there is none), `records` by task and source how
    many were added, removed and kept, `moved` the questions whose text or group stood in another split.
    Raises ArtifactError for a folder that is no finished set.
    """
    before, after = SET.read_manifest(old, verify=True), SET.read_manifest(new, verify=True)
    make_own_key, make_group_key = lru_cache(1024)(make_question_key), lru_cache(1024)(make_text_key)
    left: dict[str, tuple[str, str]] = {}
    stood: dict[int, str] = {}
    for row in _stream_all(old):
        left[row.id] = row.task, row.source
        for key in (make_own_key(row.question), make_group_key(row.group)):
            stood.setdefault(key, row.split)
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    moved: dict[str, str] = {}
    for row in _stream_all(new):
        counts[row.task, row.source]["kept" if left.pop(row.id, None) else "added"] += 1
        splits = {stood.get(key, row.split) for key in (make_own_key(row.question), make_group_key(row.group))}
        if others := splits - {row.split}:
            moved.setdefault(row.question, f"{min(others)} → {row.split}")
    for name in left.values():
        counts[name]["removed"] += 1
    fields = [_flatten({name: manifest[name] for name in COMPARED}) for manifest in (before, after)]
    return {
        "same": before["digest"] == after["digest"] and fields[0] == fields[1],
        "old": {"folder": str(old), "name": before["config"]["name"], "digest": before["digest"]},
        "new": {"folder": str(new), "name": after["config"]["name"], "digest": after["digest"]},
        "manifest": {
            name: [values.get(name) for values in fields]
            for name in sorted({*fields[0], *fields[1]})
            if fields[0].get(name) != fields[1].get(name)
        },
        "records": [
            {"task": task, "source": source, **{kind: own[kind] for kind in ("added", "removed", "kept")}}
            for (task, source), own in sorted(counts.items())
        ],
        "moved": dict(sorted(Counter(moved.values()).items())),
        "moved_questions": [f"{splits}: {question}" for question, splits in islice(moved.items(), SHOWN)],
    }


def _stream_all(folder: Path) -> Iterator[Row]:
    return (row for split in SPLITS for row in stream_rows(folder, split))


def _flatten(value: Any, name: str = "") -> dict[str, Any]:
    """`{"split": {"dev": 0.1}}` → `{"split.dev": 0.1}`; elements of lists by their number."""
    if isinstance(value, list):
        value = {str(number): element for number, element in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    parts = [_flatten(under, f"{name}.{part}" if name else part) for part, under in value.items()]
    return {field: found for part in parts for field, found in part.items()}


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


def read_file_texts(path: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Id (or line) and texts of each row. Raises DataError with the line of a row that cannot be read."""
    for line, row in read_rows(str(path)):
        if isinstance(row, MalformedRow):
            raise DataError(row.reason, where=f"{path}, line {line}", hint="mend the row, then look again")
        name = row.get("id") if isinstance(row, dict) else None
        yield str(name or f"line {line}"), list_texts(row)


def read_texts(place: Path) -> tuple[Iterator[tuple[str, Iterator[str]]], int | None]:
    """Reads id and texts of each record of a set, a world or a file of rows, and how many there are if known."""
    if not place.is_dir():
        return read_file_texts(place), None
    if (place / QUESTIONS).is_file():
        return read_file_texts(place / QUESTIONS), None
    manifest = SET.read_manifest(place, verify=True)
    records = ((row.id, list_texts([row.question, row.prompt, row.completion])) for row in _stream_all(place))
    return records, sum(manifest["records"].values())


# On a terminal

LONGEST_VALUE = 300  # characters of a field's value


def show_set(console: Console, folder: Path, chosen: dict[str, list[Row]], measured: Mapping[str, Any]) -> None:
    """The data card of a set, what `measure_set` says of it, then the chosen records."""
    console.print(Markdown(mask_controls((folder / "README.md").read_text(encoding="utf-8"))))
    routes = ", ".join(f"{route} {count:,}" for route, count in measured["routes"].items())
    console.print(f"routes: {routes or 'none'}")
    if nodes := sum(measured["operators"].values()):
        shares = ", ".join(f"{name} {count / nodes:.3f}" for name, count in measured["operators"].items())
        console.print(f"operators of {nodes:,} nodes: {shares}")
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


def show_diff(console: Console, found: Mapping[str, Any]) -> None:
    """Prints what `compare_sets` found."""
    sides = [f"{found[side]['folder']} ({found[side]['digest'][:12]})" for side in ("old", "new")]
    if found["same"]:
        console.print(f"{to_markup(sides[0])} and {to_markup(sides[1])} hold the same")
        return
    console.print(f"[bold]{to_markup(sides[0])} → {to_markup(sides[1])}[/]")
    if found["manifest"]:
        table = Table("manifest", "old", "new", title_justify="left")
        for name, values in found["manifest"].items():
            table.add_row(to_markup(name), *("–" if value is None else to_markup(_shorten(value)) for value in values))
        console.print(table)
    table = Table("task", "source", "added", "removed", "kept", title="records", title_justify="left")
    for row in found["records"]:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else to_markup(value) for value in row.values()))
    console.print(table)
    if found["moved"]:
        counted = ", ".join(f"{moved} {count:,}" for moved, count in found["moved"].items())
        console.print(f"[bold yellow]warning: questions stand in another split than before: {counted}[/]")
        console.print("An adapter trained on one of the sets may have learnt what the other one measures it on.")
        for question in found["moved_questions"]:
            console.print(f"  {to_markup(question)}")


def _shorten(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
