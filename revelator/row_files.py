"""Rows of a file, one in memory at a time: JSON lines, a JSON array, CSV, TSV or parquet.

A file may be compressed (gzip, bzip2), whatever its name. It is a path, or an address that fsspec opens (`https://…`,
`hf://datasets/OWNER/NAME/FILE`). A line that holds no row, or a row that is not UTF-8, is handed on as `MalformedRow`;
a file that cannot be read raises DataError. An array is read whole. CSV and TSV may be UTF-16 with a byte order mark.

A compressed file may unfold to a million times its size, and a sparse one takes no space. So a line and a row have
`LINE` bytes at most, a compressed array `ARRAY`, and what is compressed unfolds to `TIMES` its size beyond `UNFOLDED`;
the number of rows has no bound.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from revelator.errors import DataError
from revelator.files import find_delimiter

LINE = 1 << 27  # bytes of a line, characters of one of CSV or of a row, which may have several
UNFOLDED = 1 << 28  # bytes of a compressed file, however small it is,
TIMES = 200  # and of a larger one for each of its bytes: text has 3 to 10, tables that repeat themselves up to 50
ARRAY = 1 << 28  # bytes of a JSON array, or object, that is compressed: it takes ten times as much memory
UNBOUNDED = sys.maxsize - 1
BUFFER = 1 << 16  # bytes that are unfolded at a time
BATCH = 1024  # rows of a parquet file that are decoded at a time
ROWS = 16  # of them that become objects at a time: a dictionary may hold a long text once for all rows
BATCH_BYTES = 1 << 30  # of those rows, as columns
GROUP_BYTES = 1 << 32  # of a group of rows of a parquet file, unpacked


@dataclass(frozen=True)
class MalformedRow:
    """A line that holds no row, and why. `is_row`: JSON is well-formed and only its bytes are not UTF-8."""

    reason: str
    is_row: bool = False


Header = Callable[[list[str]], Callable[[list[str]], Any]]


def name_fields(header: list[str]) -> Callable[[list[str]], Any]:
    """Makes rows of the fields under a header: objects. Raises DataError for two columns of one name."""
    if twice := sorted(name for name, times in Counter(header).items() if times > 1):
        raise DataError(f"two columns are called {twice[0]!r}", hint="rename or remove one")
    return lambda fields: dict(zip(header, fields, strict=True))


def read_rows(
    path: str,
    member: str = "",
    *,
    header: Header = name_fields,
    columns: Collection[str] = (),
    lenient: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Line and value of each row; of a parquet file or a JSON array, the number of the row. Blank lines are no rows.

    `member` names the list of rows in a file that is one JSON object (SQuAD's "data"); JSON lines are read as usual.
    `header` makes rows of a table's fields, `columns` are those wanted of parquet (all if empty). `lenient` is for
    dumps of tables: TSV is unquoted, with bytes that are not UTF-8 replaced, and a quote within a field of CSV stands
    for itself. Raises DataError for a file that cannot be read.
    """
    line, name = 0, path.lower().removesuffix(".gz").removesuffix(".bz2")
    try:
        with _open_raw(path) if name.endswith(".parquet") else open_bytes(path) as file:
            if name.endswith(".parquet"):
                rows = _read_parquet(file, columns)
            elif name.endswith((".csv", ".tsv")):
                rows = _read_table(file, name.endswith(".tsv"), header, lenient)
            else:
                rows = _read_json(file, member)
            for line, row in rows:
                yield line, row
    except DataError as error:
        where = f"{path}, after line {line}" if line else path
        raise error if error.where else DataError(error.message, where=where, hint=error.hint) from error
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


def read_objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line and fields of each row, every one of which must be an object. Raises DataError for one that is not."""
    for line, row in read_rows(path):
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


def open_bytes(path: str) -> io.BufferedReader:
    """The bytes of a file, uncompressed."""
    file: Any = io.BufferedReader(_open_raw(path))
    start = file.peek(3)
    if start.startswith(b"\x1f\x8b"):
        return io.BufferedReader(_Unfolding(gzip.GzipFile(fileobj=file), file), BUFFER)
    if start.startswith(b"BZh"):  # CRAG is published as bzip2
        return io.BufferedReader(_Unfolding(bz2.BZ2File(file), file), BUFFER)
    return file


class _Unfolding(io.RawIOBase):
    """The bytes that `packed` unfolds to. Raises DataError for far more than a file of rows can have."""

    def __init__(self, unfolded: Any, packed: IO[bytes]) -> None:
        self._unfolded = unfolded
        self._packed = packed
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._unfolded.read(len(buffer))
        self._count += len(data)
        if self._count > UNFOLDED and self._count > TIMES * self._packed.tell():
            raise DataError(f"it unfolds to more than {TIMES} times its size", hint="unpack the file, and give that")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._packed.close()
        super().close()


def _open_raw(path: str) -> Any:
    if "://" not in path:
        return Path(path).open("rb", buffering=0)
    import fsspec

    return fsspec.open(path, "rb").open()


def _split_lines(file: Any) -> Iterator[Any]:
    """The lines of a file of bytes or text. Raises DataError for one that is longer than `LINE`."""
    for line in iter(partial(file.readline, LINE + 1), file.read(0)):
        if len(line) > LINE:
            raise _make_long_line_error()
        yield line


def _make_long_line_error() -> DataError:
    return DataError(f"a line of more than {LINE:,} bytes", hint="give each row a line of its own")


def _read_json(file: io.BufferedReader, member: str) -> Iterator[tuple[int, Any]]:
    most = ARRAY if isinstance(file.raw, _Unfolding) else UNBOUNDED
    starts = enumerate(iter(partial(file.readline, LINE + 1), b""), start=1)
    first = next((each for each in starts if each[1].strip()), (0, b""))
    lines = enumerate(_split_lines(file), start=first[0] + 1)
    is_array = first[1].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    if is_array or member:
        rest = file.read() if most == UNBOUNDED else file.read(max(0, most - len(first[1]) + 1))
        if len(first[1]) + len(rest) > most:
            hint = "unpack the file, or write a row a line"
            raise DataError(f"an array that unfolds to more than {most:,} bytes", hint=hint)
        text = (first[1] + rest).decode("utf-8-sig", "surrogateescape")
        rows = _find_rows(text, member, is_array)
        if rows is not None:
            is_faulty = find_encoding_fault(text) is not None
            for number, row in enumerate(rows, start=1):
                fault = find_encoding_fault(json.dumps(row, ensure_ascii=False)) if is_faulty else None
                yield number, MalformedRow(fault, is_row=True) if fault else row
            return
        lines = enumerate(text.encode(errors="surrogateescape").splitlines(), start=first[0])
        first = (0, b"")
    elif len(first[1]) > LINE:
        raise _make_long_line_error()
    for number, line in chain([first], lines):
        if line.strip():
            yield number, _decode_json(line)


def _find_rows(text: str, member: str, is_array: bool) -> list[Any] | None:
    """The rows of an array, or of the object's member; None where the text is lines."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is JSON, and no value of Python's
        if is_array:
            hint = "fetch it again, or give one array"
            raise DataError(f"the JSON array is cut off or malformed: {error}", hint=hint) from error
        return None
    rows = value.get(member) if isinstance(value, dict) else value
    return rows if isinstance(rows, list) else None


def _decode_json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        text = line.decode(errors="surrogateescape")
        fault = find_encoding_fault(text)
        if fault is None:
            return MalformedRow(f"not JSON: {error}")
        try:
            return MalformedRow(fault, is_row=bool(json.loads(text)))
        except (ValueError, RecursionError):
            return MalformedRow(fault)


def find_encoding_fault(text: str) -> str | None:
    """Why `text`, which was read with `surrogateescape`, is not UTF-8; None if it is."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = f"byte 0x{ord(text[error.start]) & 0xFF:02x} at character {error.start + 1}"
        return f"not UTF-8 text: {byte}; save the file as UTF-8"
    return None


def _read_table(file: IO[bytes], is_tsv: bool, header: Header, lenient: bool) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(LINE)
    is_unquoted = is_tsv and lenient
    is_wide = file.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)  # type: ignore[attr-defined]
    encoding, errors = ("utf-16", "replace") if is_wide else ("utf-8", "surrogateescape")
    text_lines = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
    is_bytes = is_unquoted and not is_wide
    lines: Iterator[str] = map(_decode_line, _split_lines(file)) if is_bytes else _split_lines(text_lines)
    first = next(lines, "").removeprefix("\ufeff")
    delimiter = "\t" if is_tsv else find_delimiter(first)
    size = 0  # of the row that is read

    def measure(lines: Iterable[str]) -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)
            if size > LINE:
                hint = "close the quote that opens in the next line"
                raise DataError(f"a row of more than {LINE:,} characters", hint=hint)
            yield line

    reader = csv.reader(
        measure(chain([first], lines)),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if is_unquoted else csv.QUOTE_MINIMAL,
        strict=not lenient,
    )
    columns = next(reader, [])
    if reason := find_encoding_fault("".join(columns)):
        raise DataError(reason)
    make_row = header(columns)
    while True:
        size = 0
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if "expected after" not in str(error):  # the file ends, or a field, within a quote that nothing closes
                raise
            yield reader.line_num, MalformedRow(f"not CSV: {error}")
            continue
        if fields is None:
            return
        text = "".join(fields)
        if reason := find_encoding_fault(text):
            yield reader.line_num, MalformedRow(reason)
        elif text.strip() and len(fields) != len(columns):
            reason = f"{len(fields)} fields do not match the header of {len(columns)} columns"
            yield reader.line_num, MalformedRow(reason)
        elif text.strip():
            yield reader.line_num, make_row(fields)


def _decode_line(line: bytes) -> str:
    """A line of TSV without quotes: a byte that is not UTF-8 is replaced, and costs no corpus of millions."""
    return line.decode(errors="replace").rstrip("\r\n").replace("\r", " ") + "\n"


def _read_parquet(file: Any, columns: Collection[str]) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file)
    groups = map(table.metadata.row_group, range(table.num_row_groups))
    if (most := max((group.total_byte_size for group in groups), default=0)) > GROUP_BYTES:
        raise DataError(f"a group of rows unfolds to {most:,} bytes", hint="write the file in smaller groups of rows")
    wanted = [name for name in table.schema_arrow.names if name in columns or not columns]
    number = 0
    for batch in table.iter_batches(batch_size=BATCH, columns=wanted):
        if batch.nbytes > BATCH_BYTES:
            hint = "shorten the texts"
            raise DataError(f"{BATCH:,} rows unfold to {batch.nbytes:,} bytes, from row {number + 1}", hint=hint)
        for first in range(0, batch.num_rows, ROWS):
            yield from enumerate(batch.slice(first, ROWS).to_pylist(), start=number + first + 1)
        number += batch.num_rows
