"""The words that a plan of a question may use when decoding keeps to names: the question's own, and function words."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

WORD = re.compile(r"\w+")


def words_of(question: str) -> frozenset[str]:
    """Runs of letters, digits and underscores; each also in lower case and with a capital."""
    return function_words() | _spellings(question)


@cache
def function_words() -> frozenset[str]:
    """`function_words.txt`: question words, prepositions, auxiliaries, nouns and verbs of common relations."""
    lines = files("revelator.language").joinpath("function_words.txt").read_text(encoding="utf-8").splitlines()
    return _spellings(" ".join(line for line in lines if not line.startswith("#")))


def _spellings(text: str) -> frozenset[str]:
    return frozenset(form for word in WORD.findall(text) for form in (word, word.lower(), word[0].upper() + word[1:]))
