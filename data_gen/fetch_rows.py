"""Rows of published files in the forms that our configurations read: members of archives, and the ways in `MAKERS`.

Nothing is unpacked under a name from an archive: a member is copied to one file of ours, so none can be written
elsewhere.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from data_gen.sources import fields
from revelator.errors import DataError
from revelator.row_files import open_bytes, read_objects, read_rows

LARGEST = 4 << 30  # bytes of one archive, unpacked; the largest that we know are about 0.5 GB
CHUNK = 1 << 20


def open_members(file: Path, member: str, work: Path) -> Iterator[Path]:
    """Yields the published file, or one after the other the regular files of an archive that are called like `member`.

    A member and what a gzip file holds are unpacked into the folder `work`, under a name that the next one takes over.
    Raises DataError for an archive without such a member, a damaged one, and one of more than `LARGEST` bytes.
    """
    if not member and file.suffix != ".gz":
        yield file
        return
    room, found = LARGEST, False
    try:
        for name, stream in _list_streams(file, member):
            found = True
            place = work / f"unpacked-{Path(name).suffix.lower()}"
            try:
                room -= _unpack(stream, place, room)
                yield place
            finally:
                place.unlink(missing_ok=True)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, OSError, EOFError, ValueError, RuntimeError) as error:
        raise DataError(f"the archive cannot be read: {error}", where=str(file)) from error
    if not found:
        raise DataError(f"the archive has no file {member!r}", where=str(file))


def _list_streams(file: Path, member: str) -> Iterator[tuple[str, IO[bytes]]]:
    if not member:
        with gzip.open(file) as stream:
            yield file.stem, stream  # type: ignore[misc]
    elif zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                if fnmatchcase(info.filename, member) and not info.is_dir():
                    with archive.open(info) as stream:
                        yield info.filename, stream
    else:
        with tarfile.open(file) as tar:
            for entry in tar:
                if fnmatchcase(entry.name, member) and entry.isreg() and (content := tar.extractfile(entry)):
                    yield entry.name, content


def _unpack(stream: IO[bytes], place: Path, room: int) -> int:
    """Copies a stream to a file; the number of bytes. Raises DataError for more than `room`."""
    size = 0
    with place.open("wb") as target:
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            if size > room:
                raise DataError(f"unpacked, it holds more than {LARGEST:,} bytes")
            target.write(chunk)
    return size


def _read_rows(file: Path) -> Iterator[Any]:
    return (row for _, row in read_objects(str(file)))


def _make_decompositions(file: Path) -> Iterator[Any]:
    """MuSiQue's questions without their paragraphs. A step names the title of its paragraph as `document_id`."""
    for row in _read_rows(file):
        titles = {paragraph["idx"]: paragraph["title"] for paragraph in row.pop("paragraphs")}
        steps = row["question_decomposition"]
        named = [{**step, "document_id": f"{titles[step['paragraph_support_idx']]}_0"} for step in steps]
        yield {**row, "question_decomposition": named}


def _make_paragraphs(file: Path) -> Iterator[Any]:
    """The distinct paragraphs of MuSiQue's and 2WikiMultiHopQA's questions, as title and text."""
    seen: set[tuple[str, str]] = set()
    for row in _read_rows(file):
        given = [(p["title"], p["paragraph_text"]) for p in row.get("paragraphs", ())]
        context = fields.list_pairs(fields.read_nested(row, "context", []))
        for title, text in given + [(title, " ".join(" ".join(sentences).split())) for title, sentences in context]:
            if (title, text) not in seen:
                seen.add((title, text))
                yield {"title": title, "text": text}


def _make_articles(file: Path) -> Iterator[Any]:
    """Rows for reading (`revelator.reading`) from a file in SQuAD's format: each answer once, none where there is no
    answer."""
    for _, article in read_rows(str(file), "data"):
        title = article["title"].replace("_", " ")
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                places = dict.fromkeys((answer["text"], answer["answer_start"]) for answer in asked["answers"])
                answers = [{"text": text, "start": start} for text, start in places]
                row = {"id": str(asked["id"]), "title": title, "question": asked["question"]}
                yield {**row, "passage": paragraph["context"], "answers": answers}


def _make_introductions(file: Path) -> Iterator[Any]:
    """OTT-QA's object of texts by address ("/wiki/Eek!_The_Cat")."""
    for place, text in json.loads(file.read_bytes()).items():
        yield {"id": place, "title": unquote(place.removeprefix("/wiki/")).replace("_", " "), "text": text}


def _split_lines(file: Path, separator: str, parts: int) -> Iterator[list[str]]:
    with open_bytes(str(file)) as lines:
        for number, line in enumerate(lines, start=1):
            cells = line.decode().rstrip("\r\n").split(separator)
            if len(cells) != parts:
                raise DataError(f"line {number} has {len(cells)} fields instead of {parts}")
            yield cells


def _make_pairs(file: Path) -> Iterator[Any]:
    """DPR's lines of a question, a tab, and its answers as a Python list, quoted as in CSV."""
    with open_bytes(str(file)) as lines:
        for question, answers in csv.reader(io.TextIOWrapper(lines, encoding="utf-8", newline=""), delimiter="\t"):
            yield {"question": question, "answer": ast.literal_eval(answers)}


def _make_answer_lists(file: Path) -> Iterator[Any]:
    """MetaQA's lines of a question, a tab, and its answers with `|` between them."""
    return ({"question": asked, "answers": said.split("|")} for asked, said in _split_lines(file, "\t", 2))


def _make_triples(file: Path) -> Iterator[str]:
    """MetaQA's lines of head, relation and tail, with tabs in the place of `|`."""
    return ("\t".join(cells) for cells in _split_lines(file, "|", 3))


MAKERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    "rows": _read_rows,
    "answer_lists": _make_answer_lists,
    "articles": _make_articles,
    "decompositions": _make_decompositions,
    "introductions": _make_introductions,
    "pairs": _make_pairs,
    "paragraphs": _make_paragraphs,
    "triples": _make_triples,
}
