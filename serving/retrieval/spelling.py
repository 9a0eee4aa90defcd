"""Words of a query that no passage holds, read as the nearest that one holds: a name typed carelessly is found.

Nearest is by edits (optimal string alignment, by rapidfuzz: a letter more, less, other, or two exchanged). A word that
MiniLM's vocabulary lists is left as it is: it is spelled well, and the corpus does not say it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from rapidfuzz.distance import OSA
from rapidfuzz.process import extract

from revelator.minilm import read_vocabulary

SPELLINGS = "words.txt"
LEAST = 3  # letters of a word that may be read as another
LONG = 8  # letters of a word in which two may be wrong
MOST = 8  # words that one is read as, where several are equally near


class Spellings:
    """The words of an index, in rising order; an index of an earlier build has none. They are read when the first query
    holds a word that no passage holds."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SPELLINGS

    @cached_property
    def _words(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").split() if self._path.exists() else []

    def find_nearest(self, word: str) -> list[str]:
        """The words that `word`, which is none of them, may be meant for: those with the fewest edits."""
        if len(word) < LEAST or not word.isalpha() or word in read_vocabulary():
            return []
        edits = 1 if len(word) < LONG else 2
        found = extract(word, self._words, scorer=OSA.distance, score_cutoff=edits, limit=MOST)
        return [near for near, distance, _ in found if distance == found[0][1]]


def write_spellings(folder: Path, words: Iterable[str]) -> None:
    """Writes the words of an index. A number, or a name with one, is never meant for another."""
    kept = sorted(word for word in words if word.isalpha() and len(word) >= LEAST - 1)
    (folder / SPELLINGS).write_text("".join(f"{word}\n" for word in kept), encoding="utf-8")
