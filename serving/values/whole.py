"""Whether an answer is nothing but a date or a quantity: "1,204 km" is, "Apollo 13" is a name with a number in it."""

from __future__ import annotations

import re

from serving.values.dates import MONTHS
from serving.values.quantities import NUMBER_WORDS, SCALES, unit

_AROUND = (
    "c ca circa about around approximately roughly nearly almost over of and in on the year years old ago square sq "
    "st nd rd th s bc bce ad ce b c a d e"
)
_MEANINGLESS = frozenset(_AROUND.split())  # beside a number


def is_value(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+", text.lower())
    if not re.search(r"\d", text) and not any(word in NUMBER_WORDS for word in words):
        return False
    return all(word in _MEANINGLESS or word in NUMBER_WORDS or word in SCALES or _is_known(word) for word in words)


def _is_known(word: str) -> bool:
    return (word[:3] in MONTHS and len(word) <= len("september")) or unit(word) is not None
