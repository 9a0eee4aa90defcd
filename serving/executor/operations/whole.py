"""Whether an answer is nothing but a date or a quantity: "1,204 km" is, "Apollo 13" is a name with a number in it."""

from __future__ import annotations

import re

from serving.executor.operations.dates import is_month
from serving.executor.operations.quantities import NUMBER_WORDS, SCALES, unit
from serving.executor.operations.text import plain

_AROUND = (
    "c ca circa about around approximately roughly nearly almost over minus of and in to on the year years old ago "
    "square sq st nd rd th s bc bce ad ce b c a d e"
)
_WORDS = frozenset(_AROUND.split()) | NUMBER_WORDS.keys() | SCALES.keys()
_MARKS = re.compile(r"[\w .,:()/'’$€£¥%²~≈−-]*")
_NOUN = re.compile(r"[a-z]{2,}")


def is_value(text: str) -> bool:
    text = plain(text)
    number = _without_noun(text.split(" "))
    return _MARKS.fullmatch(text) is not None and any(map(_counts, number)) and all(map(_is_known, number))


def _without_noun(words: list[str]) -> list[str]:
    """Without what is counted, one or two words in small letters right after a single number: "1,204 pages"."""
    known = len(words)
    while known > max(0, len(words) - 2) and _NOUN.fullmatch(words[known - 1]) and not _is_known(words[known - 1]):
        known -= 1
    last = words[known - 1] if known else ""
    counted = (_counts(last) or last in SCALES) and sum(map(_counts, words)) == 1
    return words[:known] if counted else words


def _counts(word: str) -> bool:
    return re.search(r"\d", word) is not None or any(part in NUMBER_WORDS for part in _letters(word))


def _is_known(word: str) -> bool:
    return all(part in _WORDS or is_month(part) or unit(part) is not None for part in _letters(word))


def _letters(word: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", word.lower().replace("²", ""))
