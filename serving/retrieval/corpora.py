"""What an index is made of: files of rows (JSON lines, CSV, TSV, parquet), documents, and folders of both.

A row is a passage: `title`, `text` and, if it likes, `id`. JSON lines, CSV and TSV may be gzipped; CSV and TSV have a
header. A header without `title` and `text` is that of a table of something else: a row says each column and its value
in a sentence, as in a table of Markdown, and its title is what it is about. A document (`serving.retrieval.documents`)
becomes as many passages as its length asks for.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from revelator.errors import DataError
from revelator.files import find_delimiter
from revelator.tables import find_subject, write_row_as_text
from revelator.trace import Passage
from serving.retrieval.documents import DOCUMENTS, OVERLAP, SIZE, read_document

GZIP_MAGIC = b"\x1f\x8b"
COLUMNS = ("id", "title", "text")
ROWS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
HINTS = {
    "jsonl": 'each line is one JSON object: {"id": …, "title": …, "text": …}; the name of a document ends in '
    ".md, .txt, .html, .pdf or .docx",
    "tsv": "the first line names the columns, tab-separated: id, title, text, or your own; a field is unquoted",
    "csv": "the first line names the columns: id, title, text (the id may be absent), or columns of your own",
    "parquet": "the columns are id (may be absent), title and text",
}
ROWS_AT_ONCE = 1024  # of a parquet file held in memory
FIELD_SIZE = 100_000_000  # characters of a CSV field


def find_files(paths: Sequence[Path], out: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The files that an index of `paths` is made of, by their names in it, and why others were left out.

    A file that is given is named by itself, one of a folder by its path from there. Hidden files are passed over, and
    so is the index itself, `out`.
    Raises DataError where there is nothing at a path, and where two files have one name."""
    found: dict[str, Path] = {}
    left: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            here = (file for file in path.rglob("*") if not _is_hidden(file.relative_to(path)))
            own = sorted(file for file in here if not file.resolve().is_relative_to(out.resolve()))
            named = {file.relative_to(path).as_posix(): file for file in own}
            left |= {name: reason for name, file in named.items() if (reason := _find_obstacle(file))}
            named = {name: file for name, file in named.items() if name not in left and file.is_file()}
        elif path.is_file():
            named = {path.name: path}
        else:
            raise DataError("no such file or folder", where=str(path))
        if twice := found.keys() & named.keys():
            name = min(twice)
            message = f"two files are called {name}: {found[name]} and this one"
            raise DataError(message, where=str(named[name]), hint="give the folder that holds both")
        found |= named
    return found, left


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _find_obstacle(path: Path) -> str:
    """Why a file or folder within a folder cannot be read, or nothing."""
    name = path.name.lower()
    if path.is_dir():
        return "" if os.access(path, os.R_OK | os.X_OK) else "a folder that may not be opened"
    if not (name.endswith((*DOCUMENTS, *ROWS)) or name.removesuffix(".gz").endswith(ROWS)):
        return "not a kind of file that is read"
    if not path.is_file():
        return "a link to nothing, or no file"
    return "" if os.access(path, os.R_OK) else "a file that may not be read"


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENTS


def read_corpus(
    path: Path, name: str = "", *, chunk: int = SIZE, overlap: int = OVERLAP
) -> Iterator[tuple[str, Passage]]:
    """The passages of a file, each with its place for messages (file and line; of a document the file).

    A row without `id` gets `<name without its ending>:<line>`, an empty line none. The ending of the name tells
    documents, parquet, CSV and TSV (gzipped or not) from JSON lines. Raises DataError (file, line, reason).
    """
    name = name or path.name
    if is_document(path):
        for passage in read_document(path, name, size=chunk, overlap=overlap):
            yield str(path), passage
        return
    folder, _, last = name.rpartition("/")
    stem, kind = f"{folder}/".lstrip("/") + last.split(".")[0], _find_kind(path)
    try:
        for number, row in READERS[kind](path):
            where = f"{path}:{number}"
            yield where, _make_passage(row, where=where, default_id=f"{stem}:{number}", hint=HINTS[kind])
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the corpus cannot be read: {error}", where=str(path)) from error


def _find_kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".parquet"]:
        return "parquet"
    return next((kind for kind in ("csv", "tsv") if f".{kind}" in suffixes[-2:]), "jsonl")


def open_lines(path: Path) -> IO[bytes]:
    """A file, gzipped or not whatever its name."""
    with path.open("rb") as raw:
        is_gzipped = raw.read(2) == GZIP_MAGIC
    return gzip.open(path) if is_gzipped else path.open("rb")  # type: ignore[return-value]


def _read_json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with open_lines(path) as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    where = f"{path}:{number}"
                    raise DataError(f"not a line of JSON: {error}", where=where, hint=HINTS["jsonl"]) from error


def _decode_tsv(line: bytes) -> str:
    """A line of TSV, which holds no quotes: a byte that is not UTF-8 is replaced, and costs no corpus of millions."""
    return line.decode(errors="replace").rstrip("\r\n").replace("\r", " ") + "\n"


def _read_table_rows(
    path: Path, hint: str, decode: Callable[[bytes], str] = bytes.decode, **dialect: Any
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows under a header, as passages; of a table of other columns, what each row says."""
    csv.field_size_limit(FIELD_SIZE)
    number = 1
    try:
        with open_lines(path) as lines:
            first = next(iter(lines), b"").decode("utf-8-sig")
            delimiter = dialect.pop("delimiter", "") or find_delimiter(first)
            reader = csv.reader(chain([first], map(decode, lines)), delimiter=delimiter, **dialect)
            columns = _check_columns(path, next(reader, []), hint)
            for fields in reader:
                number = reader.line_num
                if not any(field.strip() for field in fields):
                    continue
                if len(fields) != len(columns):
                    message = f"{len(fields)} fields do not match the header of {len(columns)} columns"
                    raise DataError(message, where=f"{path}:{number}", hint=hint)
                yield number, _name_fields(columns, fields)
    except UnicodeDecodeError as error:  # as spreadsheets write it in some countries
        raise DataError("not UTF-8 text", where=f"{path}, after line {number}", hint="save it as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"not a table: {error}", where=f"{path}, after line {number}", hint=hint) from error


def _check_columns(path: Path, columns: Sequence[str], hint: str) -> tuple[str, ...]:
    """The names of the columns, those of passages in lower case."""
    lower = tuple(name.strip().lower() for name in columns)
    if {"title", "text"} <= set(lower):
        return lower
    if not any(lower):
        raise DataError("the header names no column", where=f"{path}:1", hint=hint)
    return tuple(name.strip() for name in columns)


def _name_fields(columns: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    """A row as a passage; of a table of other columns, what the row says."""
    if {"title", "text"} <= set(columns):
        return {name: field for name, field in zip(columns, fields, strict=True) if name != "id" or field}
    return {"title": find_subject(fields), "text": write_row_as_text(columns, fields)}


def _read_parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = [name for name in COLUMNS if name in file.schema_arrow.names]
            rows = (row for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns) for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield number, {name: value for name, value in row.items() if name != "id" or value is not None}
    except pyarrow.ArrowException as error:
        raise DataError(f"not a parquet file that can be read: {error}", where=str(path)) from error


READERS: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
    "jsonl": _read_json_rows,
    "csv": partial(_read_table_rows, hint=HINTS["csv"]),
    "tsv": partial(_read_table_rows, hint=HINTS["tsv"], decode=_decode_tsv, delimiter="\t", quoting=csv.QUOTE_NONE),
    "parquet": _read_parquet_rows,
}


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
