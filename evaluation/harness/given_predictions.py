"""Predictions that another system made, in the forms in which the benchmarks' own scripts take them."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from evaluation.harness.checks import check_ids
from revelator.errors import DataError

TEXTS = ("prediction", "predicted_answer", "answer")


def read_given(path: Path, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The values predicted for each id: JSON lines of `id` with `prediction`, `predicted_answer` (MuSiQue) or
    `answer`, a text or a list; or one object of texts by id (SQuAD, TriviaQA), below `answer` for HotpotQA and 2Wiki.

    An id may stand without the name of its set. Raises DataError for ids that are missing, doubled or foreign.
    """
    try:
        pairs = _pairs(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8: {error}", where=str(path)) from error
    full = {id.partition(":")[2]: id for id in ids if ":" in id} | {id: id for id in ids}
    named = [(full.get(id, id), value) for id, value in pairs]
    check_ids([id for id, _ in named], ids, str(path))
    return {id: _texts(value, f"{path}, {id}") for id, value in named}


def _texts(value: Any, where: str) -> tuple[str, ...]:
    """None is no answer."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if wrong := [one for one in values if not isinstance(one, str | int | float)]:
        raise DataError(f"{json.dumps(wrong[0])} is no answer", where=where, hint="a text, or a list of texts")
    return tuple(map(str, values))


def _pairs(text: str, path: Path) -> list[tuple[str, Any]]:
    try:
        whole = json.loads(text, object_pairs_hook=list)
    except ValueError:
        return [_row(line, number, path) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    found = next((value for key, value in whole if key == "answer" and _is_pairs(value)), whole)
    if not _is_pairs(found) or "id" in dict(found):
        return [_row(line, number, path) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [(str(id), value) for id, value in found]


def _is_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in value)


def _row(line: str, number: int, path: Path) -> tuple[str, Any]:
    hint = 'rows are {"id": "…", "prediction": "…"}'
    try:
        row = json.loads(line)
        return str(row["id"]), next(row[name] for name in TEXTS if name in row)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise DataError("no prediction with an id", where=f"{path}, line {number}", hint=hint) from error
