"""What an index is made of: files of rows (JSON lines, CSV, TSV, parquet), documents, and folders of both.

A row is a passage: `title`, `text` and, if it likes, `id`; its other columns are its fields
(`serving.retrieval.fields`). JSON lines, CSV and TSV may be gzipped; CSV and TSV have a
header. A header without `title` and `text` is that of a table of something else: its rows are read as those of a table
in a document are, some to a passage, and the title is the file's name. A document (`serving.retrieval.documents`)
becomes as many passages as its length asks for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from os.path import lexists
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple

from revelator.errors import DataError
from revelator.row_files import MalformedRow, read_rows
from revelator.trace import Passage
from serving.retrieval.cutting import Paragraph, pack, write_sections
from serving.retrieval.documents import DOCUMENTS, OVERLAP, SIZE, make_passages, read_document
from serving.retrieval.fields import ALLOWED, SIDECARS, Fields, derive_fields, fold_name, read_fields, read_row_fields

COLUMNS = ("id", "title", "text")
ROWS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
HINT = (
    "a row has `title`, `text` and, if it likes, `id`: JSON lines, or a table below a header, which may have columns "
    f"of your own; the name of a document ends in {', '.join(DOCUMENTS)}"
)


UNKNOWN = "\ufffd"  # what decoding puts in the place of bytes that are not UTF-8


def find_files(paths: Sequence[Path], out: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The files that an index of `paths` is made of, by their names in it, and why others were left out.

    A file that is given is named by itself, one of a folder by its path from there. Hidden files are passed over, and
    so is the index itself, `out`. A link that leads out of its folder is left out, and one to a file that is read in
    any case; linked folders are not entered.
    Raises DataError where there is nothing at a path, for a folder in `out`, and where two files have one name."""
    found: dict[str, Path] = {}
    left: dict[str, str] = {}
    place = _resolve(out)
    for path in paths:
        if path.is_dir():
            if _resolve(path).is_relative_to(place):
                message = "the index would be built over this folder, which it reads"
                raise DataError(message, where=str(path), hint=f"name another --out than {out}")
            named, unread = _list_folder(path, place)
            left |= unread
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


def _list_folder(folder: Path, out: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The files of a folder by their names, and why others are left out. Links come last: a file is read once."""
    top = _resolve(folder)
    files: dict[str, Path] = {}
    left: dict[str, str] = {}
    names: dict[Path, str] = {}  # by where each file is
    for file in sorted(folder.rglob("*"), key=lambda file: (file.is_symlink(), file)):
        place = file.relative_to(folder)
        target = _resolve(file) if file.is_symlink() else top / place
        if _is_hidden(place) or target.is_relative_to(out):
            continue
        name = os.fsencode(place.as_posix()).decode(errors="replace")  # UNKNOWN for bytes that are not UTF-8
        if file.suffix in SIDECARS and is_read(file.stem) and lexists(file.with_suffix("")):
            continue  # what is known of the file beside it
        if reason := _find_obstacle(file, name, target, top):
            left[name] = reason
        elif target in names:
            left[name] = f"a link to {names[target]}, which is read"
        elif S_ISREG(_find_mode(file)):
            files[name], names[target] = file, name
    return dict(sorted(files.items(), key=lambda item: item[1])), left


def _resolve(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `Path.resolve` raises for a link to itself


def _find_mode(path: Path) -> int:
    """What kind of file is at a path; 0 for none, and for one behind a link that may not be followed."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _find_obstacle(path: Path, named: str, target: Path, top: Path) -> str:
    """Why a file or folder within the folder `top`, which an index calls `named` and a link leads to `target`, cannot
    be read, or nothing."""
    name = path.name.lower()
    if UNKNOWN in named:
        return "a name that is not UTF-8"
    if path.is_symlink():
        if not target.is_relative_to(top):
            return "a link that leads out of the folder"
        if _is_hidden(target.relative_to(top)):
            return "a link to a hidden file"
    if S_ISDIR(mode := _find_mode(path)):
        return "" if os.access(path, os.R_OK | os.X_OK) else "a folder that may not be opened"
    if not is_read(name):
        return "not a kind of file that is read"
    if not S_ISREG(mode):
        return "a link to nothing, or no file"
    return "" if os.access(path, os.R_OK) else "a file that may not be read"


def is_read(name: str) -> bool:
    """Whether files of such a name are read."""
    return name.lower().endswith((*DOCUMENTS, *ROWS)) or name.lower().removesuffix(".gz").endswith(ROWS)


def is_document(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENTS


@dataclass(frozen=True)
class _TableRow:
    """A row of a table with columns of its own."""

    columns: list[str]
    cells: list[str]


class ReadPassage(NamedTuple):
    """A passage, its place for messages (file and line; of a document or table the file), and its fields."""

    where: str
    passage: Passage
    fields: Fields


def read_corpus(path: Path, name: str = "", *, chunk: int = SIZE, overlap: int = OVERLAP) -> Iterator[ReadPassage]:
    """The passages of a file.

    A row without `id` gets `<name without its ending>:<line>`, an empty line none; some rows of a table get
    `<name>#<first line>-<last line>`. Raises DataError (file, line, reason).
    """
    name = name or path.name
    known = read_fields(path)
    if is_document(path):
        for passage in read_document(path, name, size=chunk, overlap=overlap):
            yield ReadPassage(str(path), passage, {**derive_fields(name, passage), **known})
        return
    folder, _, last = name.rpartition("/")
    stem = last.split(".")[0]
    rows = read_rows(str(path), header=_read_header, columns=_choose_columns(path), lenient=True)
    first = next(rows, None)
    rows = chain([first] if first else [], rows)
    if first and isinstance(first[1], _TableRow):
        for passage in make_passages(pack(_read_table(rows, path), chunk, overlap), name, stem):
            yield ReadPassage(str(path), passage, {**derive_fields(name, passage), **known})
        return
    for number, row in rows:
        where = f"{path}:{number}"
        passage = _make_passage(row, where=where, default_id=f"{folder}/{stem}:{number}".lstrip("/"))
        fields = {**derive_fields(name, passage), **known, **read_row_fields(row, where, COLUMNS)}
        yield ReadPassage(where, passage, fields)


def _choose_columns(path: Path) -> Sequence[str]:
    """The columns of a parquet file that may be fields: not those of vectors and other nested values."""
    if path.suffix.lower() != ".parquet":
        return COLUMNS
    from pyarrow import ArrowInvalid, parquet, types

    try:
        schema = parquet.read_schema(path)
    except (OSError, ArrowInvalid):  # who reads its rows says so
        return COLUMNS
    is_text = (types.is_string, types.is_large_string)
    return [
        column.name
        for column in schema
        if not types.is_nested(column.type)
        or (types.is_list(column.type) and any(is_one(column.type.value_type) for is_one in is_text))
        or fold_name(column.name) == ALLOWED
    ]


def _read_header(header: list[str]) -> Callable[[list[str]], dict[str, str] | _TableRow]:
    """Makes rows of the fields under a header: passages, or those of a table of other columns."""
    columns = [name.strip() for name in header]
    lower = [name.lower() for name in columns]
    if not any(columns):
        raise DataError("the header names no column", hint=HINT)
    if {"title", "text"} <= set(lower):
        if twice := {name for name in lower if name and lower.count(name) > 1}:
            raise DataError(f"two columns are called {min(twice)!r}", hint="rename or remove one")
        return lambda fields: {name: field for name, field in zip(lower, fields, strict=True) if name != "id" or field}
    if ALLOWED in map(fold_name, columns):
        beside = f"NAME{SIDECARS[0]}"
        hint = f"say who may read the whole in a file beside it, {beside}; or name the columns `title` and `text`"
        raise DataError(f"rows of a table share passages: none can have an `{ALLOWED}` of its own", hint=hint)
    return lambda fields: _TableRow(columns, fields)


def _read_table(rows: Iterator[tuple[int, Any]], path: Path) -> Iterator[Paragraph]:
    """The paragraphs of a table, whose places are lines of the file."""
    for number, row in rows:
        if not isinstance(row, _TableRow):
            raise DataError(row.reason, where=f"{path}:{number}", hint=HINT)
        sections = write_sections(row.columns, row.cells)
        yield from (Paragraph(section, words, number, number) for section, words in sections if words)


def _make_passage(row: Any, *, where: str, default_id: str) -> Passage:
    if not isinstance(row, dict):
        reason = row.reason if isinstance(row, MalformedRow) else f"not an object but {type(row).__name__}"
        raise DataError(reason, where=where, hint=HINT)
    for name in ("title", "text"):
        if not isinstance(row.get(name), str):
            raise DataError(f"`{name}` is missing or not a string", where=where, hint=HINT)
    if not f"{row['title']}{row['text']}".strip():
        raise DataError("title and text are both empty", where=where, hint=HINT)
    identity = default_id if row.get("id") is None else row["id"]
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise DataError("`id` is neither a string nor a whole number", where=where, hint=HINT)
    return Passage(id=str(identity), title=row["title"], text=row["text"])
