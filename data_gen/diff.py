"""What changed from one instruction set to another: configuration, hashes, records, and questions in another split.

A record is known by its id, a question by its normalised text and by the id that its records share (`group`). Of each
record about 150 bytes are held: digests, and the names of its split, task, source and prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from data_gen.leakage import digest, question_digest
from revelator.rows import COLUMNS, SPLITS, column_names, read_columns, read_manifest, read_values

NAMES = ("split", "task", "source", "prompt_hash")
KINDS = ("added", "removed", "changed")


def diff(old: Path, new: Path, samples: int = 3) -> dict[str, Any]:
    """The differences as plain values; `same` says whether there are none. Of each kind `samples` records are shown.

    Raises DataError for a folder that is no finished set.
    """
    before, after = read_manifest(old), read_manifest(new)
    columns = [name for name in COLUMNS if all(name in column_names(folder, SPLITS[0]) for folder in (old, new))]
    a, b = _index(old, columns), _index(new, columns)
    both = a.merge(b, on="id", how="outer", suffixes=("_old", "_new"), indicator="side")
    is_changed = both.content_old != both.content_new
    both["kind"] = np.select([both.side == "right_only", both.side == "left_only", is_changed], KINDS, "")
    both = both[both.kind != ""]
    moved = _moved(a, b)
    found: dict[str, Any] = {
        "old": {"folder": str(old), "name": before["config"]["name"], "digest": before["digest"]},
        "new": {"folder": str(new), "name": after["config"]["name"], "digest": after["digest"]},
        "config": _changes(_flat(before["config"]), _flat(after["config"])),
        "hashes": _changes(_hashes(before, a), _hashes(after, b)),
        "records": {"task": _by(both, "task"), "source": _by(both, "source")},
        "shapes": _changes(_totals(before, "shape"), _totals(after, "shape")),
        "licences": _changes(_totals(before, "licence"), _totals(after, "licence")),
        "left_out": _changes(before["dropped"], after["dropped"]),
        "questions": {"added": _beyond(b, a), "removed": _beyond(a, b)},
        "moved": {f"{was} → {now}": len(rows) for (was, now), rows in moved.groupby(["was", "split"])},
    }
    found["same"] = not (found["config"] or found["hashes"] or found["left_out"] or len(both))
    found["samples"] = {kind: _samples(old, new, both[both.kind == kind], samples) for kind in KINDS}
    found["samples"]["moved"] = [
        {"question": read_values(new, row.split, row.row)["question"], "old": row.was, "new": row.split}
        for row in moved.nsmallest(samples, "question").itertuples()
    ]
    return found


def _index(folder: Path, columns: Sequence[str]) -> pandas.DataFrame:
    """One row a record: digests of its id, its content, its question and group; its names; its place in its split."""
    return pandas.concat(_index_of_batches(folder, columns), ignore_index=True)


def _index_of_batches(folder: Path, columns: Sequence[str]) -> Iterator[pandas.DataFrame]:
    text_digest = lru_cache(maxsize=1024)(question_digest)
    for split in SPLITS:
        first = 0
        for batch in read_columns(folder, split, columns):
            values = {name: batch[name].to_pylist() for name in columns}
            digests = {
                "id": [digest(id) for id in values["id"]],
                "content": [digest("\0".join(row)) for row in zip(*values.values(), strict=True)],
                "question": [text_digest(text) for text in values["question"]],
                "group": [digest(group) for group in values["group"]],
            }
            names = batch.select(NAMES).to_pandas()
            rows = range(first, first + batch.num_rows)
            yield pandas.DataFrame(digests, dtype="uint64").join(names).assign(row=np.array(rows, dtype=np.int32))
            first += batch.num_rows


def _moved(a: pandas.DataFrame, b: pandas.DataFrame) -> pandas.DataFrame:
    """Questions of the new set whose text or group stood in another split (`was`) of the old one; one row each."""
    asked = b.drop_duplicates(["question", "group"])
    found = []
    for key in ("question", "group"):
        known = a.drop_duplicates(key)[[key, "split"]].rename(columns={"split": "was"})
        found.append(asked.merge(known, on=key))
    moved = pandas.concat(found)
    return moved[moved.split != moved.was].drop_duplicates("question")


def _beyond(these: pandas.DataFrame, those: pandas.DataFrame) -> int:
    """How many questions of `these` are not among `those`."""
    return int((~these.question.drop_duplicates().isin(those.question)).sum())


def _by(both: pandas.DataFrame, name: str) -> dict[str, dict[str, int]]:
    """Value of a column → kind of difference → records."""
    values = both[f"{name}_new"].where(both.kind != "removed", both[f"{name}_old"])
    counts = both.groupby([values, "kind"]).size().unstack(fill_value=0).reindex(columns=KINDS, fill_value=0)
    return {str(value): {kind: int(row[kind]) for kind in KINDS} for value, row in counts.iterrows()}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Name → [old value, new value] where they differ; None where there is none."""
    names = sorted({*old, *new})
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """`{"split": {"dev": 0.1}}` → `{"split.dev": 0.1}`; elements of lists by their number."""
    if isinstance(value, list):
        value = {str(number): element for number, element in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    parts = [_flat(under, f"{name}.{part}" if name else part) for part, under in value.items()]
    return {field: found for part in parts for field, found in part.items()}


def _hashes(manifest: Mapping[str, Any], index: pandas.DataFrame) -> dict[str, str]:
    prompts = index.drop_duplicates(["task", "prompt_hash"])
    return {
        "grammar": manifest["grammar_hash"],
        "prompts": manifest["prompt_hash"],
        **{f"prompt of {task}": ", ".join(sorted(rows)) for task, rows in prompts.groupby("task").prompt_hash},
        **{f"input {path}": digest for path, digest in manifest["inputs"].items()},
    }


def _totals(manifest: Mapping[str, Any], name: str) -> dict[str, int]:
    """Records by the values of a column, over all splits."""
    counts: dict[str, int] = {}
    for split in manifest["counts"][name].values():
        for value, count in split.items():
            counts[value] = counts.get(value, 0) + count
    return counts


def _samples(old: Path, new: Path, rows: pandas.DataFrame, count: int) -> list[dict[str, Any]]:
    """The first few by digest: an id, and the fields that differ with their old and new values."""
    shown = []
    for row in rows.nsmallest(count, "id").itertuples():
        sides = [
            {} if pandas.isna(place) else read_values(folder, split, int(place))
            for folder, split, place in ((old, row.split_old, row.row_old), (new, row.split_new, row.row_new))
        ]
        shown.append({"id": (sides[0] or sides[1])["id"], "fields": _changes(*sides)})
    return shown
