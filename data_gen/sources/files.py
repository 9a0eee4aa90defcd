"""Rows of a published file or data set, one in memory at a time.

A file holds JSON lines, a JSON array, CSV or parquet, compressed (gzip, bzip2) or not. It is a path, or an address that
fsspec opens (`https://…`, `hf://datasets/OWNER/NAME/FILE`). A data set of the Hugging Face Hub streams through
`datasets`. A line that holds no row, or a row that is not UTF-8, is handed on as `MalformedRow`; a file that cannot be
read raises DataError.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import logging
import re
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs

from revelator.errors import DataError
from revelator.files import find_delimiter

CHUNK = 1 << 16
CELL = 1 << 27  # characters of a cell of CSV
MEMBER_WITHIN = 1 << 20  # characters in which the named member of an object has to begin
DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class MalformedRow:
    """A line that holds no row, and why. `is_row`: JSON is well-formed and only its bytes are not UTF-8."""

    reason: str
    is_row: bool = False


def find_encoding_fault(text: str) -> str | None:
    """Why `text`, which was read with `surrogateescape`, is not UTF-8; None if it is."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = f"byte 0x{ord(text[error.start]) & 0xFF:02x} at character {error.start + 1}"
        return f"not UTF-8 text: {byte}; save the file as UTF-8"
    return None


def read_json_rows(file: IO[str], path: str, member: str = "") -> Iterator[tuple[int, Any]]:
    """Line and value of each row. Raises DataError when an array ends before its bracket."""
    line, start = 1, file.read(1)
    while start.isspace():
        line += start == "\n"
        start = file.read(1)
    if start == "[":
        rest = yield from _read_array("", file, path, line)
        if (rest + file.read(CHUNK)).strip():
            raise DataError("more follows the end of the JSON array", where=path, hint="give one array, or lines")
        return
    text, offset = _find_member(start, file, member) if start == "{" and member else (start, None)
    if offset is not None:
        yield from _read_array(text[offset:], file, path, line + text[:offset].count("\n"))
        return
    for number, row in enumerate(_read_lines(text, file), start=line):
        if row.strip():
            yield number, _decode(row)


def _read_lines(read: str, file: IO[str]) -> Iterator[str]:
    """The lines of what has been read, then those that follow."""
    *whole, begun = read.split("\n")
    yield from whole
    yield begun + file.readline()
    yield from file


def _decode(text: str) -> Any:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is JSON, and no value of Python's
        return MalformedRow(find_encoding_fault(text) or f"not JSON: {error}")
    reason = find_encoding_fault(text)
    return MalformedRow(reason, is_row=True) if reason else row


def _find_member(text: str, file: IO[str], name: str) -> tuple[str, int | None]:
    """What has been read, and where in it the elements of the array `name` begin, before which the object has plain
    values alone; None if it has no such array."""
    start = re.compile(rf'\s*\{{(?:"(?:[^"\\]|\\.)*"|[^"\[\]{{}}])*?"{name}"\s*:\s*\[')
    while not (found := start.match(text)):
        if len(text) > MEMBER_WITHIN or not (more := file.read(CHUNK)):
            return text, None
        text += more
    return text, found.end()


def _read_array(text: str, file: IO[str], path: str, line: int) -> Generator[tuple[int, Any], None, str]:
    """Elements of an array whose bracket has been read, and what was read beyond its end; `line` is where an element
    begins."""
    while True:
        stripped = text.lstrip(" \t\r\n,")
        line += text[: len(text) - len(stripped)].count("\n")
        text = stripped
        if text.startswith("]"):
            return text[1:]
        try:
            value, end = DECODER.raw_decode(text) if text else (None, 0)
        except json.JSONDecodeError:
            end = 0
        except (ValueError, RecursionError) as error:
            raise DataError(f"no value: {error}", where=f"{path}, line {line}", hint="mend or remove it") from error
        if end:
            reason = find_encoding_fault(text[:end])
            yield line, MalformedRow(reason, is_row=True) if reason else value
            line += text[:end].count("\n")
            text = text[end:]
        elif more := file.read(max(CHUNK, len(text))):
            text += more
        else:
            raise DataError(
                "the JSON array is cut off or malformed", where=f"{path}, line {line}", hint="fetch it again"
            )


BATCH = 256  # rows of a parquet file that are decoded at a time


def read_file_rows(path: str, member: str = "") -> Iterator[tuple[int, Any]]:
    """Line and value of each row; of a parquet file, the number of the row. Blank lines are no rows.

    `member` names the list of rows in a file that is one JSON object (SQuAD's "data"). A file of JSON lines is read as
    usual. Raises DataError for a file that cannot be read or has no row.
    """
    line = 0
    try:
        for line, row in _read_rows(path, member):
            yield line, row
    except DataError:
        raise
    except FileNotFoundError as error:
        if "://" in path:
            raise make_unreadable_error(path, error) from error
        raise DataError("there is no such file", where=path, hint="check the path and REVELATOR_DATA") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the gzip stream is damaged: {error}", where=f"{path}, after line {line}", hint="fetch the file again"
        ) from error
    except csv.Error as error:
        hint = "close the quote that opens in the next line"
        raise DataError(f"not CSV: {error}", where=f"{path}, after line {line}", hint=hint) from error
    except Exception as error:  # fsspec and pyarrow have no common error: each protocol raises its own
        raise make_unreadable_error(path, error) from error
    if line == 0:
        raise DataError("the file has no row", where=path, hint="give rows below a header, or JSON lines")


def read_objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line and fields of each row, every one of which must be an object. Raises DataError for one that is not."""
    for line, row in read_file_rows(path):
        if not isinstance(row, dict):
            reason = row.reason if isinstance(row, MalformedRow) else "not an object"
            raise DataError(
                reason, where=f"{path}, line {line}", hint="give rows of named fields, as they were published"
            )
        yield line, row


def make_unreadable_error(place: str, error: Exception) -> DataError:
    """Makes one clear error for a file or Hub data set, whichever library tried to read it."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    hint = "check the address and the network, or fetch the data and give its path" if "://" in place else None
    if Path(place).is_dir():
        hint = "give one of its files"
    return DataError(f"cannot be read: {(reason or type(error).__name__)[:240]}", where=place, hint=hint)


def _read_rows(path: str, member: str) -> Iterator[tuple[int, Any]]:
    name = path.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".parquet"):
        yield from _read_parquet(path)
        return
    with _open_text(path) as file:
        yield from (
            _read_csv(file, path, "\t" if name.endswith(".tsv") else ",")
            if name.endswith((".csv", ".tsv"))
            else read_json_rows(file, path, member)
        )


def _open_text(path: str) -> IO[str]:
    raw: Any = _open_binary(path)
    buffered = io.BufferedReader(raw)
    bytes_read: Any = buffered
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        bytes_read = gzip.GzipFile(fileobj=buffered)
    elif buffered.peek(3)[:3] == b"BZh":  # CRAG is published so
        bytes_read = bz2.BZ2File(buffered)
    # a byte that is not UTF-8 goes through as a surrogate: `find_encoding_fault` then finds it in its own line
    return io.TextIOWrapper(bytes_read, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _open_binary(path: str) -> Any:
    if "://" not in path:
        return Path(path).open("rb", buffering=0)
    import fsspec

    return fsspec.open(path, "rb").open()


def _read_csv(file: IO[str], path: str, delimiter: str) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(CELL)
    first = file.readline()
    if delimiter == ",":
        delimiter = find_delimiter(first)
    reader = csv.reader(chain([first], file), delimiter=delimiter, strict=True)
    header = next(reader, [])
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"two columns are called {twice[0]!r}", where=f"{path}, line 1", hint="rename or remove one")
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            if "expected after" not in str(error):  # the file ends, or a field, within a quote that nothing closes
                raise
            yield line, MalformedRow(f"not CSV: {error}")
            continue
        if values is None:
            return
        if reason := find_encoding_fault("".join(values)):
            yield line, MalformedRow(reason)
        elif len(values) == len(header):
            yield line, dict(zip(header, values, strict=True))
        elif values:
            yield line, MalformedRow(f"the header has {len(header)} columns, the row {len(values)}")


def _read_parquet(path: str) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet

    with _open_binary(path) as file:
        number = 0
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, row


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
