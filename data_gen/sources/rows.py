"""Rows of a published file: JSON lines or one JSON array, plain or gzipped, one row in memory at a time.

A row that cannot be read is handed on as `Refused` with its line and reason; a file that cannot be read raises
DataError.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from data_gen.annotated import AnnotatedQuestion, checked
from data_gen.annotation import UnplannableError
from revelator.errors import DataError

CHUNK = 1 << 16


@dataclass(frozen=True)
class Refused:
    """A malformed row."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Skipped:
    """A sound row that gives no training data; rows are counted by `reason`."""

    id: str
    reason: str


Outcome = AnnotatedQuestion | Refused | Skipped


def read_annotated(path: Path, annotate: Callable[[dict[str, Any]], AnnotatedQuestion]) -> Iterator[Outcome]:
    """Each row of `path` through `annotate`. Raises DataError when the file itself is broken."""
    usable = False
    for line, row in _rows(path):
        outcome = row if isinstance(row, Refused) else _annotated(path, line, row, annotate)
        usable = usable or not isinstance(outcome, Refused)
        if line > 1 or usable or not isinstance(row, Refused):
            yield outcome
            continue
        raise DataError(
            f"not a JSON or JSON-lines file: {row.reason}",
            where=f"{path}, line {line}",
            hint="give the file as it was published (.json, .jsonl, either gzipped)",
        )


def _annotated(path: Path, line: int, row: Any, annotate: Callable[[dict[str, Any]], AnnotatedQuestion]) -> Outcome:
    if not isinstance(row, dict):
        return Refused(str(path), line, f"expected an object, found {type(row).__name__}")
    try:
        return checked(annotate(row))
    except UnplannableError as reason:
        return Skipped(str(row.get("id") or row.get("_id")), reason.message)
    except DataError as error:
        return Refused(str(path), line, error.message)
    except KeyError as error:
        return Refused(str(path), line, f"field {error} is missing")
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        return Refused(str(path), line, f"a field has an unexpected form: {error}")


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    line = 0
    try:
        with _opened(path) as file:
            start = file.read(1)
            while start.isspace():
                line += start == "\n"
                start = file.read(1)
            if start == "[":
                yield from _array(file, path)
                return
            first = start + file.readline()
            for text in _chained(first, file):
                line += 1
                if text.strip():
                    yield line, _decoded(text, path, line)
    except FileNotFoundError as error:
        raise DataError("there is no such file", where=str(path), hint="check the path and REVELATOR_DATA") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the gzip stream is damaged: {error}", where=f"{path}, after line {line}", hint="fetch the file again"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text: {error.reason}", where=f"{path}, after line {line}") from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    if line == 0:
        raise DataError("the file is empty", where=str(path), hint="fetch the file again")


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8-sig") if zipped else path.open(encoding="utf-8-sig")


def _chained(first: str, rest: Iterable[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _decoded(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        return Refused(str(path), line, f"not JSON: {error}")


def _array(file: IO[str], path: Path) -> Iterator[tuple[int, Any]]:
    """Elements of a JSON array whose bracket has been read; `line` is where an element begins."""
    decoder, text, line = json.JSONDecoder(), "", 1
    while True:
        stripped = text.lstrip(" \t\r\n,")
        line += text[: len(text) - len(stripped)].count("\n")
        text = stripped
        if text.startswith("]"):
            return
        try:
            value, end = decoder.raw_decode(text) if text else (None, 0)
        except json.JSONDecodeError:
            end = 0
        if end:
            yield line, value
            line += text[:end].count("\n")
            text = text[end:]
        elif more := file.read(max(CHUNK, len(text))):
            text += more
        else:
            raise DataError(
                "the JSON array is cut off or malformed", where=f"{path}, line {line}", hint="fetch it again"
            )
