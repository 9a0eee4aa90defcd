"""What a model was trained on, as fingerprints: so that a figure can say how many of its questions any model has seen.

A question is known by the sha256 of its normalised text: Unicode NFKC, case folded, every run of characters that are
not alphanumeric one space, stripped. A fingerprint is the first 40 bits of it. Of a million fingerprints one question
in a million is taken for one that was seen. A question in other words has another fingerprint: a paraphrase is not
caught.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revelator.errors import ArtifactError
from revelator.folders import FolderKind

FILE = "fingerprints.npz"  # beside the weights of a base, an adapter or a reader, and beside the rows of a set
BYTES = 5  # of a fingerprint
NOT_ALPHANUMERIC = re.compile(r"[\W_]+")

Array = NDArray[np.uint64]
NONE: Array = np.array([], np.uint64)


def normalise(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return NOT_ALPHANUMERIC.sub(" ", folded).strip()


def hash_question(text: str) -> str:
    """sha256 hex of the normalised text."""
    return hashlib.sha256(normalise(text).encode()).hexdigest()


def fingerprint(text: str) -> int:
    """The first 40 bits of `hash_question`."""
    return int(hash_question(text)[: 2 * BYTES], 16)


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """The questions that a model was trained on, and the titles of the articles that it learned to read from, each
    sorted and without repeats. `unknown` names what else went into the model and has no fingerprints: a base from the
    Hub, an adapter of an earlier release. `digests` holds the sha256 of each file that they were read from, by the name
    of its folder, "" for a folder without one."""

    questions: Array = field(default_factory=lambda: NONE)
    titles: Array = field(default_factory=lambda: NONE)
    unknown: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, questions: Iterable[str] = (), titles: Iterable[str] = ()) -> Fingerprints:
        return cls(_sort(map(fingerprint, questions)), _sort(map(fingerprint, titles)))

    @classmethod
    def of_numbers(cls, questions: Iterable[int]) -> Fingerprints:
        """Of questions whose `fingerprint` is known."""
        return cls(_sort(questions))

    def __or__(self, other: Fingerprints) -> Fingerprints:
        """What was seen by either: of an adapter and its base."""
        return Fingerprints(
            np.union1d(self.questions, other.questions),
            np.union1d(self.titles, other.titles),
            tuple(sorted({*self.unknown, *other.unknown})),
            {**self.digests, **other.digests},
        )

    def has_question(self, text: str) -> bool:
        return _holds(self.questions, text)

    def has_title(self, title: str) -> bool:
        return _holds(self.titles, title)

    def write(self, folder: Path) -> None:
        """Writes FILE into a folder whose manifest, written later, has its digest."""
        unknown = np.frombuffer(json.dumps(self.unknown).encode(), np.uint8)
        np.savez(folder / FILE, questions=_pack(self.questions), titles=_pack(self.titles), unknown=unknown)

    @classmethod
    def read(cls, folder: Path, kind: FolderKind, name: str = "") -> Fingerprints:
        """Reads the file that the manifest of a folder lists. Where no manifest of this kind lists one, a file that
        lies there is not read: `name`, by default the folder's, is unknown.

        Raises ArtifactError for a listed file that is missing, that has another sha256, or that cannot be read."""
        path, own, hint = folder / FILE, folder.resolve().name, f"make it with `{kind.command}`"
        digest = kind.find_manifest(folder).get("files", {}).get(FILE, "")
        if not digest:
            return cls(unknown=(name or own,), digests={own: ""})
        if not path.is_file():
            raise ArtifactError("is missing", where=str(path), hint=hint)
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ArtifactError("has changed since it was built", where=str(path), hint=hint)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                unknown = tuple(map(str, json.loads(found["unknown"].tobytes())))
                return cls(_unpack(found["questions"]), _unpack(found["titles"]), unknown, {own: digest})
        except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ArtifactError(f"the fingerprints cannot be read: {error}", where=str(path), hint=hint) from error


def _sort(values: Iterable[int]) -> Array:
    return np.unique(np.fromiter(values, np.uint64))


def _holds(values: Array, text: str) -> bool:
    wanted = np.uint64(fingerprint(text))
    place = int(np.searchsorted(values, wanted))
    return place < len(values) and bool(values[place] == wanted)


def _pack(values: Array) -> NDArray[np.uint8]:
    return values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, -BYTES:]


def _unpack(packed: NDArray[np.uint8]) -> Array:
    if packed.ndim != 2 or packed.shape[1] != BYTES or packed.dtype != np.uint8:
        raise ValueError(f"rows of {BYTES} bytes are needed")
    whole = np.zeros((len(packed), 8), np.uint8)
    whole[:, -BYTES:] = packed
    return whole.view(">u8").ravel().astype(np.uint64)
