"""The names of a question, and the words that a plan of it may use when decoding keeps to names: the question's own and
function words."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

WORD = re.compile(r"\w+")
NAME_WORD = re.compile(r"[^\W_][\w'.&-]*")


def words_in(text: str) -> list[str]:
    """The words of a text as names have them (`O'Neill`, `AT&T`), without a genitive's `'s` and a sentence's end."""
    return [word.rstrip(".'-&").removesuffix("'s") for word in NAME_WORD.findall(text)]


def name_words(question: str) -> list[str]:
    """Words that begin with a capital or a digit, each once; the first word of all is left out if it asks."""
    first, *others = words_in(question) or [""]
    words = others if first in function_words() else [first, *others]
    return [word for word in dict.fromkeys(words) if word and (word[0].isupper() or word[0].isdigit())]


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
