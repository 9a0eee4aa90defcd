"""Corpora as they come: passages from JSON lines, tables or parquet.

A corpus is JSON lines (`{"id", "title", "text"}`, one a line), a table with these columns as TSV with a header, either
of them gzipped or not, or parquet.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from revelator.errors import DataError
from revelator.trace import Passage

GZIP_MAGIC = b"\x1f\x8b"
COLUMNS = ("id", "title", "text")
HINTS = {
    "jsonl": 'each line is one JSON object: {"id": …, "title": …, "text": …}',
    "tsv": "the first line names the columns, tab-separated: id, title, text; a field is written as it is, unquoted",
    "parquet": "the columns are id (may be absent), title and text",
}
ROWS_AT_ONCE = 1024  # of a parquet file held in memory


def read_corpus(
    path: Path, *, progress: Callable[[int], object] = lambda position: None
) -> Iterator[tuple[int, Passage]]:
    """Line number and passage of each row; a row without `id` gets `<file stem>:<line>`, an empty line none.

    The name's ending tells parquet and TSV (`.tsv`, `.tsv.gz`) from JSON lines. A parquet file's rows count from 1, and
    its progress is in rows; else `progress` is told the position in the file in bytes. Raises DataError (file, line,
    reason).
    """
    stem = path.name.split(".")[0]
    kind = find_kind(path)
    try:
        for number, row in (
            _read_parquet_rows(path, progress) if kind == "parquet" else _read_text_rows(path, kind, progress)
        ):
            where = f"{path}:{number}"
            yield number, _make_passage(row, where=where, default_id=f"{stem}:{number}", hint=HINTS[kind])
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the corpus cannot be read: {error}", where=str(path)) from error


def find_kind(path: Path) -> str:
    """`parquet`, `tsv` or `jsonl`, by the ending of the name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "parquet" if suffixes[-1:] == [".parquet"] else "tsv" if ".tsv" in suffixes[-2:] else "jsonl"


def measure_corpus(path: Path) -> int:
    """Where `progress` ends: bytes, or rows of a parquet file (0 where it cannot be read)."""
    if find_kind(path) != "parquet":
        return path.stat().st_size
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_metadata(path).num_rows
    except pyarrow.ArrowException:
        return 0


def _read_text_rows(path: Path, kind: str, progress: Callable[[int], object]) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as raw:
        gzipped = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        lines: IO[bytes] = gzip.GzipFile(fileobj=raw) if gzipped else raw  # type: ignore[assignment]
        columns = _read_header(path, next(iter(lines), b"")) if kind == "tsv" else ()
        for number, line in enumerate(lines, start=2 if columns else 1):
            if line.strip():
                where = f"{path}:{number}"
                yield number, _read_tsv_row(line, columns, where) if columns else _read_json_row(line, where)
            if number % 1000 == 0:
                progress(raw.tell())
        progress(raw.tell())


def _read_header(path: Path, line: bytes) -> tuple[str, ...]:
    columns = tuple(name.strip().lower() for name in line.decode(errors="replace").lstrip("\ufeff").split("\t"))
    if not {"title", "text"} <= set(columns):
        raise DataError("the header names no `title` and `text`", where=f"{path}:1", hint=HINTS["tsv"])
    return columns


def _read_tsv_row(line: bytes, columns: tuple[str, ...], where: str) -> dict[str, str]:
    fields = line.decode(errors="replace").rstrip("\r\n").split("\t")
    if len(fields) != len(columns):
        raise DataError(f"{len(fields)} fields under {len(columns)} columns", where=where, hint=HINTS["tsv"])
    return {name: field for name, field in zip(columns, fields, strict=True) if name != "id" or field}


def _read_parquet_rows(path: Path, progress: Callable[[int], object]) -> Iterator[tuple[int, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = [name for name in COLUMNS if name in file.schema_arrow.names]
            number = 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: value for name, value in row.items() if name != "id" or value is not None}
                progress(number)
    except pyarrow.ArrowException as error:
        raise DataError(f"not a parquet file that can be read: {error}", where=str(path)) from error


def _read_json_row(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a line of JSON: {error}", where=where, hint=HINTS["jsonl"]) from error


def _make_passage(row: Any, *, where: str, default_id: str, hint: str) -> Passage:
    if not isinstance(row, dict):
        raise DataError(f"not an object but {type(row).__name__}", where=where, hint=hint)
    for name in ("title", "text"):
        if not isinstance(row.get(name), str):
            raise DataError(f"`{name}` is missing or not a string", where=where, hint=hint)
    if not f"{row['title']}{row['text']}".strip():
        raise DataError("title and text are both empty", where=where, hint=hint)
    identity = row.get("id", default_id)
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise DataError("`id` is neither a string nor a whole number", where=where, hint=hint)
    return Passage(id=str(identity), title=row["title"], text=row["text"])
