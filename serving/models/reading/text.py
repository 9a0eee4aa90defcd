"""Sentences and tokens, with their places in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from serving.retrieval import STOP_WORDS, extract_terms

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*(?:st|nd|rd|th)?(?![^\W\d_])|[^\W_]+(?:['’.\-‐–/][^\W_]+)*|[^\w\s]|_+")
_SENTENCE_END = re.compile(r"(?<!\.\.)[.!?][\"”’')\]]*(?=\s+[\"“‘'(\[]?[A-Z0-9À-ÖØ-Þ])|\n+")
_ABBREVIATION = re.compile(
    r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Rev|Gen|Col|Lt|Capt|Sgt|Gov|Sen|Rep|Hon|vs|Mt|Ft|Inc|Co|Corp"
    r"|Ltd|Bros|c|ca|cf|ca|b|d|r|fl|approx|op|etc|e\.g|i\.e))\.$"
)

_NUMBERED = re.compile(r"\b(?:Nos?|[Vv]ol|[Pp]p?)\.$")
SENTENCE_CHARACTERS = 600  # scoring a sentence takes time of its third power: longer ones are read in pieces


@dataclass(frozen=True)
class Token:
    """A word, number or mark; `start` and `end` are character offsets in its sentence."""

    text: str
    start: int
    end: int

    @cached_property
    def lower(self) -> str:
        return self.text.lower().replace("’", "'").removesuffix("'s")

    @cached_property
    def stem(self) -> str:
        """The stem, or "" for a mark or a word that carries no content."""
        found = extract_terms(self.lower)
        return found[0] if found else ""

    @property
    def is_word(self) -> bool:
        return self.text[0].isalnum()

    @property
    def capitalised(self) -> bool:
        return self.text[0].isupper()


def tokenise(text: str) -> tuple[Token, ...]:
    return tuple(Token(m[0], m.start(), m.end()) for m in _TOKEN.finditer(text))


def sentences(text: str) -> list[str]:
    """The sentences of a text in order; a full stop after an initial or a common abbreviation ends none."""
    found, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        if match[0].startswith(".") and _ABBREVIATION.search(text, start, match.start() + 1):
            continue
        if _NUMBERED.search(text, start, match.start() + 1) and text[match.end() + 1].isdigit():
            continue
        found.append(text[start : match.end()].strip())
        start = match.end()
    found.append(text[start:].strip())
    return [piece for sentence in found if sentence for piece in _pieces(sentence)]


def _pieces(sentence: str) -> Iterator[str]:
    """The sentence itself, or, of a long one, pieces that end at a space where there is one."""
    while len(sentence) > SENTENCE_CHARACTERS:
        at = sentence.rfind(" ", 1, SENTENCE_CHARACTERS) + 1 or SENTENCE_CHARACTERS
        yield sentence[:at].strip()
        sentence = sentence[at:].strip()
    yield sentence


def content(tokens: tuple[Token, ...]) -> set[str]:
    """The distinct stems of the words that are not stop words."""
    return {t.stem for t in tokens if t.stem and t.lower not in STOP_WORDS}
