"""No question twice, and none that is held out for measuring.

A question is known by the sha256 of its normalised text: Unicode NFKC, case folded, every run of characters that are
not alphanumeric one space, stripped. A held-out file has lines of that hash in hex, two spaces, and the name of a set.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path

from revelator.errors import DataError

LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def normalise(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in folded).split())


def question_hash(text: str) -> str:
    """sha256 hex of the normalised text."""
    return hashlib.sha256(normalise(text).encode()).hexdigest()


def load_held_out(path: Path) -> dict[str, str]:
    """Hash → name of the set that holds the question out. Raises DataError with the line that is not such a pair."""
    held: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the held-out hashes cannot be read: {error}", where=str(path)) from error
    for number, line in enumerate(lines, start=1):
        match = LINE.fullmatch(line)
        if match is None:
            raise DataError(
                "expected a sha256 in hex, two spaces and a set's name",
                where=f"{path}, line {number}",
                hint="each hash is over the normalised question, as in data_gen/leakage.py",
            )
        held[match[1]] = match[2]
    return held


class Gate:
    """Lets each question through once: remembers hashes of texts and ids, whichever split they went to."""

    def __init__(self, held_out: dict[str, str]) -> None:
        self.held_out = held_out
        self._texts: set[bytes] = set()
        self._ids: set[str] = set()

    def leaks(self, *texts: str) -> str | None:
        """The set that holds out one of the texts, or None."""
        return next((self.held_out[h] for text in texts if (h := question_hash(text)) in self.held_out), None)

    def admit(self, identity: str, question: str) -> str | None:
        """None if the question is new (it is remembered then), or the reason why it is not."""
        text = bytes.fromhex(question_hash(question))
        if identity in self._ids:
            return "id seen before"
        if text in self._texts:
            return "question seen before"
        self._ids.add(identity)
        self._texts.add(text)
        return None
