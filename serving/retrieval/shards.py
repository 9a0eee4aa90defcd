"""A build's work folder: the corpus in shards, so that a killed build goes on where it was.

A shard is written in one step; one that was damaged since is made again.

A shard holds `size` passages with their terms or vectors, or both; `revelator.files.work_folder` keeps them.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from revelator.files import write_bytes
from revelator.trace import Passage
from serving.retrieval.passages import passage_line
from serving.retrieval.settings import IndexSettings
from serving.retrieval.words import terms


@dataclass(frozen=True)
class Shard:
    """One file of consecutive passages; each array is read from it when it is asked for."""

    path: Path

    def whole(self) -> bool:
        """Is the file there with every byte that was written (the archive's own CRC)?"""
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.testzip() is None
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile):
            return False

    def _array(self, name: str) -> np.ndarray:
        with np.load(self.path) as arrays:
            return arrays[name]

    @property
    def lines(self) -> bytes:
        """The passages as the store keeps them."""
        return self._array("lines").tobytes()

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each passage in `lines`, shape (n,)."""
        return self._array("sizes")

    @property
    def lengths(self) -> np.ndarray:
        """Terms of each passage, shape (n,)."""
        return self._array("lengths")

    @property
    def words(self) -> np.ndarray:
        """All terms of all passages, as places in `vocabulary`, shape (sum of lengths,)."""
        return self._array("words")

    @property
    def vocabulary(self) -> list[str]:
        """The shard's terms in order of first use."""
        return json.loads(self._array("vocabulary").tobytes())

    @property
    def vectors(self) -> np.ndarray:
        """Unit vectors, shape (n, dimensions), float32."""
        return self._array("vectors")


def write_shard(path: Path, passages: Sequence[Passage], settings: IndexSettings, vectors: np.ndarray | None) -> None:
    """Writes one shard in one step."""
    lines = [passage_line(passage) for passage in passages]
    arrays = {"lines": _bytes(b"".join(lines)), "sizes": np.array([len(line) for line in lines], np.uint64)}
    if settings.sparse:
        arrays |= _terms(passages, settings)
    if vectors is not None:
        arrays["vectors"] = vectors
    file = io.BytesIO()
    np.savez(file, **arrays)
    write_bytes(path, file.getvalue())


def _terms(passages: Sequence[Passage], settings: IndexSettings) -> dict[str, np.ndarray]:
    vocabulary: dict[str, int] = {}
    words: list[int] = []
    lengths = []
    for passage in passages:
        found = terms(passage.title) * settings.title_weight + terms(passage.text)
        words += [vocabulary.setdefault(word, len(vocabulary)) for word in found]
        lengths.append(len(found))
    names = _bytes(json.dumps(list(vocabulary)).encode())
    return {"vocabulary": names, "words": np.array(words, np.int32), "lengths": np.array(lengths, np.int64)}


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
