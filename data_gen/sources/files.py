"""Rows of a published file, one in memory at a time: JSON lines, a JSON array, CSV or parquet, compressed (gzip,
bzip2) or not.

A file is a path, or an address that fsspec opens (`https://…`, `hf://datasets/OWNER/NAME/FILE`). A line that holds no
row, or a row that is not UTF-8, is handed on as `Malformed`; a file that cannot be read raises DataError.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from data_gen.sources.json_rows import Malformed, json_rows, not_utf8
from revelator.errors import DataError

BATCH = 256  # rows of a parquet file that are decoded at a time


def file_rows(path: str, member: str = "") -> Iterator[tuple[int, Any]]:
    """Line and value of each row; of a parquet file, the number of the row. Blank lines are no rows.

    `member` names the list of rows in a file that is one JSON object (SQuAD's "data"); it may hold lines, too.
    """
    line = 0
    try:
        for line, row in _rows(path, member):
            yield line, row
    except DataError:
        raise
    except FileNotFoundError as error:
        if "://" in path:
            raise unreadable(path, error) from error
        raise DataError("there is no such file", where=path, hint="check the path and REVELATOR_DATA") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the gzip stream is damaged: {error}", where=f"{path}, after line {line}", hint="fetch the file again"
        ) from error
    except csv.Error as error:
        hint = "close the quote that opens in the next line"
        raise DataError(f"not CSV: {error}", where=f"{path}, after line {line}", hint=hint) from error
    except Exception as error:  # fsspec and pyarrow have no common error: each protocol raises its own
        raise unreadable(path, error) from error
    if line == 0:
        raise DataError("the file is empty", where=path, hint="fetch the file again")


def unreadable(place: str, error: Exception) -> DataError:
    """One clear error for a file, folder or Hub data set, whichever library tried to read it."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
    hint = "check the address and the network, or fetch the data and give its path" if "://" in place else None
    if Path(place.partition("?")[0]).is_dir():
        hint = "give one of its files, or a folder that holds nothing but the files of one data set"
    return DataError(f"cannot be read: {(reason or type(error).__name__)[:240]}", where=place, hint=hint)


def _rows(path: str, member: str) -> Iterator[tuple[int, Any]]:
    name = path.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".parquet"):
        yield from _parquet(path)
        return
    with _opened(path) as file:
        yield from (
            _csv(file, "\t" if name.endswith(".tsv") else ",")
            if name.endswith((".csv", ".tsv"))
            else json_rows(file, path, member)
        )


def _opened(path: str) -> IO[str]:
    raw: Any = _binary(path)
    buffered = io.BufferedReader(raw)
    bytes_read: Any = buffered
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        bytes_read = gzip.GzipFile(fileobj=buffered)
    elif buffered.peek(3)[:3] == b"BZh":
        bytes_read = bz2.BZ2File(buffered)
    # a byte that is not UTF-8 goes through as a surrogate, so that it is found in its own line: see `not_utf8`
    return io.TextIOWrapper(bytes_read, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _binary(path: str) -> Any:
    if "://" not in path:
        return Path(path).open("rb", buffering=0)
    import fsspec

    return fsspec.open(path, "rb").open()


def _csv(file: IO[str], delimiter: str) -> Iterator[tuple[int, Any]]:
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    header = next(reader, [])
    before = reader.line_num
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "expected after" not in str(error):  # the file ends, or a field, within a quote that nothing closes
                raise
            yield before + 1, Malformed(f"not CSV: {error}")
            before = reader.line_num
            continue
        if reason := not_utf8("".join(values)):
            yield before + 1, Malformed(reason)
        elif len(values) == len(header):
            yield before + 1, dict(zip(header, values, strict=True))
        elif values:
            yield before + 1, Malformed(f"the header has {len(header)} columns, the row {len(values)}")
        before = reader.line_num


def _parquet(path: str) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet

    with _binary(path) as file:
        number = 0
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, row
