"""Passages on disk: corpora as JSON lines, and a store that several processes share through the page cache.

A corpus is a file of `{"id", "title", "text"}` objects, one a line, gzipped or not. The store keeps those lines as
one file with an array of offsets beside it; both are memory-mapped, so that a process which opened the store holds
only the pages that it has touched.
"""

from __future__ import annotations

import gzip
import json
import mmap
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from revelator.errors import ArtifactError, DataError
from revelator.trace import Passage

GZIP_MAGIC = b"\x1f\x8b"


def read_corpus(
    path: Path, *, progress: Callable[[int], object] = lambda position: None
) -> Iterator[tuple[int, Passage]]:
    """Line number and passage of each line; a line without `id` gets `<file stem>:<line>`, an empty line none.

    `progress` is told the position in the file in bytes. Raises DataError (file, line, reason).
    """
    try:
        with path.open("rb") as raw:
            gzipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            stem = path.name.split(".")[0]
            for number, line in enumerate(gzip.GzipFile(fileobj=raw) if gzipped else raw, start=1):
                if line.strip():
                    yield number, _passage(line, where=f"{path}:{number}", default_id=f"{stem}:{number}")
                if number % 1000 == 0:
                    progress(raw.tell())
            progress(raw.tell())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the corpus cannot be read: {error}", where=str(path)) from error


def _passage(line: bytes, *, where: str, default_id: str) -> Passage:
    hint = 'each line is one JSON object: {"id": …, "title": …, "text": …}'
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"not a line of JSON: {error}", where=where, hint=hint) from error
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


class PassageWriter:
    """Fills a store in a folder: `passages.jsonl` as it goes, `offsets.npy` (uint64, count + 1) when it closes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets = [0]
        self.file = (folder / "passages.jsonl").open("wb")

    def add(self, passage: Passage) -> None:
        row = {"id": passage.id, "title": passage.title, "text": passage.text}
        # surrogates that JSON can escape and UTF-8 cannot hold become replacement marks
        size = self.file.write((json.dumps(row, ensure_ascii=False) + "\n").encode(errors="replace"))
        self.offsets.append(self.offsets[-1] + size)

    def __enter__(self) -> PassageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        if error is None:
            np.save(self.folder / "offsets.npy", np.array(self.offsets, dtype=np.uint64))


class PassageStore:
    """Read-only passages by position. Safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        path = folder / "passages.jsonl"
        self.offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        with path.open("rb") as file:
            self.lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self.lines) != int(self.offsets[-1]):
            raise ArtifactError(
                f"{len(self.lines)} bytes where {int(self.offsets[-1])} were written",
                where=str(path),
                hint="build the index again",
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: int) -> Passage:
        if not 0 <= position < len(self):
            raise IndexError(position)
        return Passage(**json.loads(self.lines[int(self.offsets[position]) : int(self.offsets[position + 1])]))


_CLOSERS = re.compile(r" +([,;:!?.](?!\w)|[%)\]}»]|''|n't\b|'(?:s|m|d|re|ll|ve|em)\b)", re.IGNORECASE)
_OPENERS = re.compile(r"([(\[{$£€«#]|``) +")
_TIGHT_OPENER = re.compile(r"(?<=\w)\( (?=\S)")
_PLURAL_POSSESSIVE = re.compile(r"(?<=s) '(?= \w)")
_QUOTED = re.compile(r'" ?([^"]*?) ?"')
_HALF_HYPHEN = re.compile(r"(?<=[^\W\d_])- (?!and\b|or\b|to\b)(?=[^\W\d_])")
_SPACES = re.compile(r" {2,}")


def detokenize(text: str) -> str:
    """Text as a person would set it, from text in which punctuation stands apart: `Eek ! ( 1992 )` → `Eek! (1992)`.

    Spaces are removed and set around punctuation, straight double quotes are closed onto what they quote; no letter
    or digit is touched. Text that is set well already stays as it is.
    """
    text = _CLOSERS.sub(r"\1", text)
    text = _TIGHT_OPENER.sub(" (", text)
    text = _OPENERS.sub(r"\1", text)
    text = _PLURAL_POSSESSIVE.sub("'", text)
    text = _HALF_HYPHEN.sub("-", text)
    text = _QUOTED.sub(_set_quote, text)
    return _SPACES.sub(" ", text.replace("U.S..", "U.S.")).strip()


def _set_quote(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    before = " " if start and (text[start - 1].isalnum() or text[start - 1] in ",;:.") else ""
    after = " " if end < len(text) and text[end].isalnum() else ""
    return f'{before}"{match[1].strip()}"{after}'
