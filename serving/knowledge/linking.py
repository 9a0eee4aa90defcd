"""Which relation of a graph a phrase means: its name, or the name that shares most word beginnings with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from serving.knowledge.labels import Label, key_of
from serving.retrieval import STOP_WORDS

SHARED = 5  # letters at the beginning that make two words one: direct|or, direct|ed
THRESHOLD = 0.5


def best_relations(phrase: str, relations: Sequence[Label]) -> list[Label]:
    """The relations named exactly so, or else those of the best score of at least `THRESHOLD`; none when all are
    worse. The score is the share of word beginnings in common (Dice)."""
    key = key_of(phrase)
    exact = [label for label in relations if key_of(label.text) == key]
    if exact:
        return exact
    scored = [(similarity(key, key_of(label.text)), label) for label in relations]
    best = max((score for score, _ in scored), default=0.0)
    return [label for score, label in scored if score == best] if best >= THRESHOLD else []


def similarity(a: str, b: str) -> float:
    """Dice coefficient of two keys' words, stop words left out; words with the same beginning are one."""
    first, second = ([word for word in key.split() if word not in STOP_WORDS] or key.split() for key in (a, b))
    if not first or not second:
        return 0.0
    matched = sum(any(alike(word, other) for other in second) for word in first)
    return 2 * min(matched, len(second)) / (len(first) + len(second))


def alike(a: str, b: str) -> bool:
    """Equal words, or words that share their first `SHARED` letters or all but an `s`."""
    if a == b or a.removesuffix("s") == b.removesuffix("s"):
        return True
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))) >= SHARED
