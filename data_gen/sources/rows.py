"""From the rows of a source to annotated questions, one row in memory at a time.

A row that cannot be read is handed on as `RefusedRow` with its line and reason; a file that cannot be read raises
DataError.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from data_gen.questions import QUESTIONS, AnnotatedQuestion, DroppedError, quote_value
from revelator.errors import DataError
from revelator.row_files import MalformedRow, make_unreadable_error, read_rows

MALFORMED = "malformed row:"
LISTED = 100
FAULTS = (DataError, KeyError, TypeError, ValueError, AttributeError, IndexError)  # of a row in an unexpected form
IDS = ("id", "_id", "qid", "question_id")


@dataclass(frozen=True)
class RefusedRow:
    """A malformed row."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class SkippedRow:
    """A sound row that gives no training data; rows are counted by `reason`."""

    id: str
    reason: str


ReadResult = AnnotatedQuestion | RefusedRow | SkippedRow
Annotate = Callable[[dict[str, Any]], Any]  # an annotated question, or a row of one, which is checked afterwards
Unfold = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]


def read_annotated(
    path: Path | str, annotate: Annotate, unfold: Unfold = lambda row: (row,), member: str = ""
) -> Iterator[ReadResult]:
    """Each row of `path` through `annotate`. Raises DataError when the file itself is broken.

    `path` is a file or its address (`revelator.row_files`), or a data set of the Hub. `unfold` gives the
    questions of a row that holds several. `member` names the list of rows in a file that is one object.
    """
    place, usable = str(path), False
    for line, row in read_dataset_rows(place) if is_dataset(place) else read_rows(place, member):
        if isinstance(row, MalformedRow) and line == 1 and not (usable or row.is_row):
            raise DataError(
                f"not a file of rows: {row.reason}",
                where=f"{place}, line {line}",
                hint="give the file as it was published (.json, .jsonl, .csv, .parquet, the first three also gzipped)",
            )
        usable = True
        yield from _read_outcomes(place, line, row, annotate, unfold)
    if not usable:
        raise DataError("the file has no row", where=place, hint="give rows below a header, or JSON lines")


def _read_outcomes(place: str, line: int, row: Any, annotate: Annotate, unfold: Unfold) -> Iterator[ReadResult]:
    if not isinstance(row, dict):
        reason = row.reason if isinstance(row, MalformedRow) else f"expected an object, found {quote_value(row)}"
        yield RefusedRow(place, line, reason)
        return
    try:
        questions = list(unfold(row))
    except FAULTS as error:
        yield RefusedRow(place, line, _describe_fault(error, row))
        return
    for question in questions:
        try:
            yield AnnotatedQuestion.from_json(annotate(question))
        except DroppedError as reason:
            yield SkippedRow(str(next((question[key] for key in IDS if question.get(key)), "")), reason.message)
        except FAULTS as error:
            yield RefusedRow(place, line, _describe_fault(error, question))


def _describe_fault(error: Exception, row: Any) -> str:
    if isinstance(error, DataError):
        return error.message
    there = ", ".join(map(str, row)) if isinstance(row, dict) else quote_value(row)
    if isinstance(error, KeyError):
        return f"field {error} is missing; there are {there or 'none'}"
    return f"a field has another form than this format's; there are {there}"


def count_outcome(outcome: RefusedRow | SkippedRow, dropped: Counter[str]) -> None:
    """Counts a row that gives no question. The first `LISTED` malformed rows are named by their place."""
    match outcome:
        case SkippedRow():
            dropped[outcome.reason] += 1
        case RefusedRow() if sum(reason.startswith(MALFORMED) for reason in dropped) < LISTED:
            dropped[f"{MALFORMED} {outcome.file}, line {outcome.line}: {outcome.reason}"] += 1
        case RefusedRow():
            dropped["more malformed rows"] += 1


def read_world(path: Path | str) -> Iterator[ReadResult]:
    """The questions of a world's folder, or of a file of annotated questions."""
    folder = Path(path)
    return read_annotated(folder / QUESTIONS if folder.is_dir() else path, lambda row: row)


HUB = re.compile(r"hf://datasets/[^/?]+/[^/?]+(?:\?.*)?")


def is_dataset(place: str) -> bool:
    """Whether `place` is `hf://datasets/OWNER/NAME`; `?split=…&subset=…` may follow."""
    return HUB.fullmatch(place) is not None


def read_dataset_rows(place: str) -> Iterator[tuple[int, Any]]:
    """Number and value of each row of one split (`train` unless named). Raises DataError if it cannot be read."""
    name, _, query = place.partition("?")  # with `hf://`: no folder of that name is read in its stead
    wanted = parse_qs(query)
    if unknown := sorted(set(wanted) - {"split", "subset"}):
        raise DataError(f"unknown {', '.join(unknown)}", where=place, hint="write NAME?split=train&subset=default")
    if twice := [name for name, values in wanted.items() if len(values) > 1]:
        raise DataError(f"{twice[0]} is given twice", where=place, hint="make each a source of its own")
    from datasets import load_dataset

    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # it logs what it then raises
    [subset], [split] = wanted.get("subset", [None]), wanted.get("split", ["train"])
    try:
        yield from enumerate(load_dataset(name, subset, split=split, streaming=True), start=1)
    except Exception as error:  # datasets, huggingface_hub, httpx and pyarrow each raise their own
        raise make_unreadable_error(place, error) from error
