"""The files of a build as parts of its index: surveyed for faults, read again, and where they have changed since.

Every passage is read twice: the survey finds a broken last line before the first vector is made, and how many passages
there are. Documents are read by the build's engine (`revelator.cluster`), files of rows in this process.
"""

from __future__ import annotations

import os
import platform
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.progress import Progress

from revelator.cluster import Engine
from revelator.errors import DataError
from serving.retrieval.corpora import ReadPassage, read_corpus
from serving.retrieval.documents import PartlyRead
from serving.retrieval.fields import digest_source
from serving.retrieval.index_folder import IndexSettings
from serving.retrieval.words import hash_word

T = TypeVar("T")
Survey = tuple["array[int]", str, DataError | None]  # hashes of ids, what of a file could not be read, why it ended


@dataclass(frozen=True)
class Part:
    """The passages of one file: where they are read from, and their vectors where an older index has them.

    `path` is absolute. `read` gives its passages; `ids` only their ids, where that is less work; `vectors` has one row
    a passage. `note` says what of the file could not be read, if it was read before. A broken file ends the build if
    it `must_be_whole`, and is left out otherwise. A file that `is_document` is read whole, by the build's engine."""

    name: str
    path: str
    sha256: str
    read: Callable[[], Iterator[ReadPassage]]
    vectors: np.ndarray | None = None
    note: str = ""
    must_be_whole: bool = False
    is_document: bool = False
    ids: Callable[[], Iterator[str]] | None = None


def is_gone(path: str) -> bool:
    """Whether there is no file at a path that an index was built from."""
    return not Path(path).is_file()


def has_changed(path: str, sha256: str) -> bool:
    """Whether a file is there and is another one than that of the digest, or what is known of it is."""
    return not is_gone(path) and digest_source(Path(path)) != sha256


def read_file(path: Path, name: str, settings: IndexSettings) -> Iterator[ReadPassage]:
    return read_corpus(path, name, chunk=settings.chunk, overlap=settings.overlap)


def survey(
    parts: Sequence[Part], engine: Engine, progress: Progress
) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """Reads every passage once. Returns, by name, how many each part has, why documents were left out, and what of
    those that were read could not be.

    8 bytes a passage are held to find an id that is used twice."""
    seen = array("Q")
    counts: dict[str, int] = {}
    unread: dict[str, str] = {}
    notes: dict[str, str] = {}
    task = progress.add_task("reading", total=len(parts))
    surveyed = _read_each(parts, _survey_part, partial(_survey_document, os.getpid()), engine)
    for done, (part, (hashes, note, fault)) in enumerate(zip(parts, surveyed, strict=True), 1):
        if fault and part.must_be_whole:
            raise fault
        if fault:
            unread[part.name] = fault.message
        else:
            seen += hashes
            counts[part.name], notes[part.name] = len(hashes), note
        progress.update(task, completed=done)
    if not seen:
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(unread.items())[:3])
        raise DataError(f"no passage in the corpus{reasons}", where=", ".join(part.name for part in parts[:3]))
    ids = np.frombuffer(seen, np.uint64)
    distinct, times = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        _refuse_duplicate_ids([part for part in parts if part.name in counts], frozenset(distinct[times > 1].tolist()))
    return counts, unread, notes


def _read_each(
    parts: Sequence[Part], here: Callable[[Part], T], far: Callable[[Part], T], engine: Engine
) -> Iterator[T]:
    """What `here` makes of each part, in order; of a document what `far` does, which runs on the engine."""
    documents = engine(far, (part for part in parts if part.is_document))
    return (next(documents) if part.is_document else here(part) for part in parts)


def _require_same(part: Part, starter: int) -> None:
    """Raises DataError where another process than the one that started the build sees another file than that did: a
    node of a cluster that lacks the folder must not leave the file out."""
    if os.getpid() == starter:
        return
    try:
        reason = (
            "" if digest_source(Path(part.path)) == part.sha256 else "another file than where the build was started"
        )
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    if reason:
        hint = "all nodes need the same documents at the same paths; if this one has just changed, build again"
        raise DataError(f"on the Ray node {platform.node()}: {reason}", where=part.path, hint=hint)


def _survey_document(starter: int, part: Part) -> Survey:
    _require_same(part, starter)
    return _survey_part(part)


def _survey_part(part: Part) -> Survey:
    ids, fault = array("Q"), None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PartlyRead)
        try:
            ids.extend(map(hash_word, part.ids() if part.ids else (one.passage.id for one in part.read())))
        except DataError as error:
            fault = error
    reasons = [str(each.message) for each in said if each.category is PartlyRead]
    return ids, "; ".join([part.note] * bool(part.note) + reasons), fault


def _refuse_duplicate_ids(parts: Sequence[Part], suspects: frozenset[int]) -> None:
    """Names both places of an id that is used twice. Ids of one hash that differ pass."""
    places: dict[str, str] = {}
    for part in parts:
        for where, passage, _ in part.read():
            if hash_word(passage.id) in suspects:
                if passage.id in places:
                    message = f"id {passage.id!r} was used already at {places[passage.id]}"
                    raise DataError(message, where=where, hint="leave the ids out, or make each the only one")
                places[passage.id] = where


def open_passages(
    parts: Sequence[Part], counts: Mapping[str, int], engine: Engine
) -> Iterator[tuple[Part, Iterator[ReadPassage]]]:
    """The parts, and the passages of each: to be taken before the next part is. Raises DataError for a file that has
    fewer than were counted."""
    opened = _read_each(parts, _open_rows, partial(_read_document, os.getpid()), engine)
    for part, passages in zip(parts, opened, strict=True):
        yield part, _take(part, iter(passages), counts[part.name])


def _take(part: Part, passages: Iterator[ReadPassage], expected: int) -> Iterator[ReadPassage]:
    for _ in range(expected):
        one = next(passages, None)
        if one is None:
            raise DataError("it changed while it was read", where=part.path, hint="build the index again")
        yield one


def _open_rows(part: Part) -> Iterable[ReadPassage]:
    return part.read()


def _read_document(starter: int, part: Part) -> Iterable[ReadPassage]:
    _require_same(part, starter)
    return list(part.read())
