"""Looking into finished sets: sample records, what changed from one set to another, and held-out questions.

The difference of two sets: what their manifests say, records, and questions in another split. A record is known by its
id, a question by its normalised text and by the id that its records share (`group`). Memory holds about 150 bytes of
each record: digests, and the names of its split, task and source.

Held-out questions: a build drops them as it reads (`data_gen.leakage`); this module looks for them in what was written,
whoever wrote it. It reads the question, prompt and completion of each record of a set, and every text of a world (GRPO
runs plans over its questions) or of a file of rows: the whole text, its lines, and each part that ends in a question
mark.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from data_gen.leakage import digest_question, digest_text
from data_gen.questions import QUESTIONS
from data_gen.sources.files import MalformedRow, read_file_rows
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.plans.art import number_nodes, parse
from revelator.rows import (
    COLUMNS,
    MANIFEST,
    SPLITS,
    Row,
    read_column_names,
    read_columns,
    read_manifest,
    read_values,
    stream_rows,
)
from revelator.tasks import TASKS, TRANSLATE_ART


def choose_samples(folder: Path, split: str, task: str | None, count: int) -> dict[str, list[Row]]:
    """`count` records a task, drawn by the hash of their id: the same ones at every look."""
    return {
        name: heapq.nsmallest(count, stream_rows(folder, split, name), key=lambda record: sha256_text(record.id))
        for name in ([task] if task else TASKS)
    }


def measure_set(folder: Path, split: str) -> dict[str, Any]:
    """Routes of a split by how many questions have them, operators of its trees by how many nodes have them, and of
    each task the median and longest prompt and completion in characters."""
    found: dict[str, Any] = {"routes": Counter[str](), "operators": Counter[str](), "lengths": {}}
    sizes: dict[str, list[tuple[int, int]]] = {}
    for row in stream_rows(folder, split):
        sizes.setdefault(row.task, []).append((len(row.prompt), len(row.completion)))
        if row.task == "route":
            found["routes"][row.label] += 1
        elif row.task == TRANSLATE_ART.name:
            found["operators"].update(_list_operators(json.loads(row.gold)))
    for task in filter(sizes.get, TASKS):
        middle, longest = np.median(sizes[task], axis=0), np.max(sizes[task], axis=0)
        names = ("prompt", "completion")
        found["lengths"][task] = {
            name: {"median": int(middle[i]), "longest": int(longest[i])} for i, name in enumerate(names)
        }
    return found | {name: dict(found[name].most_common()) for name in ("routes", "operators")}


def _list_operators(tree: str) -> Iterator[str]:
    """The operator of each node of a tree that has no children; `direct` where it has none."""
    for at in number_nodes(parse(tree)):
        if not at.children:
            yield type(at.node.call).__name__ if at.node.call else "direct"


NAMES = ("split", "task", "source")
KINDS = ("added", "removed", "changed")


def compare_sets(old: Path, new: Path, samples: int = 3) -> dict[str, Any]:
    """The differences as plain values; `same` says whether there are none. Of each kind `samples` records are shown.

    Raises DataError for a folder that is no finished set.
    """
    before, after = read_manifest(old), read_manifest(new)
    columns = [name for name in COLUMNS if all(name in read_column_names(folder, SPLITS[0]) for folder in (old, new))]
    a, b = _index_records(old, columns), _index_records(new, columns)
    both = a.merge(b, on="id", how="outer", suffixes=("_old", "_new"), indicator="side")
    is_changed = both.content_old != both.content_new
    both["kind"] = np.select([both.side == "right_only", both.side == "left_only", is_changed], KINDS, "")
    both = both[both.kind != ""]
    moved = _find_moved(a, b)
    found: dict[str, Any] = {
        "old": {"folder": str(old), "name": before["config"]["name"], "digest": before["digest"]},
        "new": {"folder": str(new), "name": after["config"]["name"], "digest": after["digest"]},
        "manifest": _list_changes(_summarise(before), _summarise(after)),
        "records": {"task": _count_by(both, "task"), "source": _count_by(both, "source")},
        "questions": {"added": _count_missing(b, a), "removed": _count_missing(a, b)},
        "moved": {f"{was} → {now}": len(rows) for (was, now), rows in moved.groupby(["was", "split"])},
    }
    found["same"] = not (found["manifest"] or len(both))
    found["samples"] = {kind: _sample_changes(old, new, both[both.kind == kind], samples) for kind in KINDS}
    found["samples"]["moved"] = [
        {"question": read_values(new, row.split, row.row)["question"], "old": row.was, "new": row.split}
        for row in moved.nsmallest(samples, "question").itertuples()
    ]
    return found


def _index_records(folder: Path, columns: Sequence[str]) -> pandas.DataFrame:
    """One row a record: digests of its id, its content, its question and group; its names; its place in its split."""
    return pandas.concat(_index_batches(folder, columns), ignore_index=True)


def _index_batches(folder: Path, columns: Sequence[str]) -> Iterator[pandas.DataFrame]:
    text_digest = lru_cache(maxsize=1024)(digest_question)
    for split in SPLITS:
        first = 0
        for batch in read_columns(folder, split, columns):
            values = {name: batch[name].to_pylist() for name in columns}
            digests = {
                "id": [digest_text(id) for id in values["id"]],
                "content": [digest_text("\0".join(row)) for row in zip(*values.values(), strict=True)],
                "question": [text_digest(text) for text in values["question"]],
                "group": [digest_text(group) for group in values["group"]],
            }
            names = batch.select(NAMES).to_pandas()
            rows = range(first, first + batch.num_rows)
            yield pandas.DataFrame(digests, dtype="uint64").join(names).assign(row=np.array(rows, dtype=np.int32))
            first += batch.num_rows


def _find_moved(a: pandas.DataFrame, b: pandas.DataFrame) -> pandas.DataFrame:
    """Questions of the new set whose text or group stood in another split (`was`) of the old one; one row each."""
    asked = b.drop_duplicates(["question", "group"])
    found = []
    for key in ("question", "group"):
        known = a.drop_duplicates(key)[[key, "split"]].rename(columns={"split": "was"})
        found.append(asked.merge(known, on=key))
    moved = pandas.concat(found)
    return moved[moved.split != moved.was].drop_duplicates("question")


def _count_missing(these: pandas.DataFrame, those: pandas.DataFrame) -> int:
    """How many questions of `these` are not among `those`."""
    return int((~these.question.drop_duplicates().isin(those.question)).sum())


def _count_by(both: pandas.DataFrame, name: str) -> dict[str, dict[str, int]]:
    """Value of a column → kind of difference → records."""
    values = both[f"{name}_new"].where(both.kind != "removed", both[f"{name}_old"])
    counts = both.groupby([values, "kind"]).size().unstack(fill_value=0).reindex(columns=KINDS, fill_value=0)
    return {str(value): {kind: int(row[kind]) for kind in KINDS} for value, row in counts.iterrows()}


def _summarise(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """From what a set was made, what was left out, and how many records it has of each licence and shape."""
    counts = {name: manifest["counts"][name] for name in ("licence", "shape")}
    hashes = {name: manifest[name] for name in ("grammar_hash", "prompt_hash", "inputs")}
    return _flatten({"config": manifest["config"], **hashes, "left out": manifest["dropped"], **counts})


def _list_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Name → [old value, new value] where they differ; None where there is none."""
    names = sorted({*old, *new})
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def _flatten(value: Any, name: str = "") -> dict[str, Any]:
    """`{"split": {"dev": 0.1}}` → `{"split.dev": 0.1}`; elements of lists by their number."""
    if isinstance(value, list):
        value = {str(number): element for number, element in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    parts = [_flatten(under, f"{name}.{part}" if name else part) for part, under in value.items()]
    return {field: found for part in parts for field, found in part.items()}


def _sample_changes(old: Path, new: Path, rows: pandas.DataFrame, count: int) -> list[dict[str, Any]]:
    """The first few by digest: an id, and the fields that differ with their old and new values."""
    shown = []
    for row in rows.nsmallest(count, "id").itertuples():
        sides = [
            {} if pandas.isna(place) else read_values(folder, split, int(place))
            for folder, split, place in ((old, row.split_old, row.row_old), (new, row.split_new, row.row_new))
        ]
        shown.append({"id": (sides[0] or sides[1])["id"], "fields": _list_changes(*sides)})
    return shown


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
