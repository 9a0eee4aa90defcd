"""Where sentences end: at stops of any script and at line ends, but neither in "Dr. Who", "J. Smith" nor "2.5"; and
what is punctuation alone."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_END = re.compile(r"[.!?…][\"”’'»)\]]*(?=\s(?!\s*[a-z]))|[。！？۔؟।]|\n")
_NO_END = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|St|Mt|Ft|Jr|Sr|Prof|Rev|Gen|Col|Lt|Capt|Gov|Sen|Rep|vs|ca?))\.$")


def find_ends(text: str, start: int = 0, end: int | None = None) -> list[int]:
    """The places in `text[start:end]`, in characters of `text`, at which a sentence ends; the last may have none."""
    found = _END.finditer(text, start, len(text) if end is None else end)
    return [match.end() for match in found if not _NO_END.search(text, max(0, match.start() - 5), match.start() + 1)]


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without those that hold nothing."""
    places = [0, *find_ends(text), len(text)]
    found = (text[start:end].strip() for start, end in pairwise(places))
    return [sentence for sentence in found if sentence]


def is_punctuation(text: str) -> bool:
    """Whether a text says nothing: "…", "–", ""; a symbol such as "€" says something."""
    return all(character.isspace() or unicodedata.category(character).startswith("P") for character in text)
