"""The candidates of a comparison ("… A or B?"), found by what the question shares with each part's own questions."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence


def candidates(question: str, parts: Sequence[Sequence[str]]) -> list[str]:
    """For each part, the longest span of `question` that stands in that part's questions and in no other part's, as the
    question writes it; "" where there is none.

    >>> candidates("Which came first, Taxi! or What Now??", [["When did Taxi! come?"], ["When did What Now? come?"]])
    ['Taxi!', 'What Now?']
    """
    words = question.split()
    keys = [_key(word) for word in words]
    texts = [[f" {' '.join(map(_key, text.split()))} " for text in part] for part in parts]
    return [
        _label(question, words, _longest(keys, own, [t for j, part in enumerate(texts) if j != i for t in part]))
        for i, own in enumerate(texts)
    ]


_BARE = re.compile(
    r"(?:^|[,;:–-]|\b(?:or|and|than|between|among|either|is|was|are|were|did|do|does)|^of|\b(?:which|who|one) of)$",
    re.IGNORECASE,
)


def is_described(question: str, label: str) -> bool:
    """Whether the question uses a name to speak of something else: "the director of Taxi!", "Taxi!'s director"."""
    if not label or label[0].islower():
        return True
    before, _, after = question.partition(label)
    return re.match(r"['’]s?\s", after) is not None or _BARE.search(before.strip().removesuffix(" the")) is None


def _longest(keys: Sequence[str], own: Sequence[str], others: Sequence[str]) -> tuple[int, int]:
    best = (0, 0)
    for start in range(len(keys)):
        shortest = start + best[1] - best[0] + 1
        ends = range(shortest, len(keys) + 1)  # of spans that stand in a text only where every shorter one does
        matched = bisect_left(ends, True, key=lambda end: not _in_any(keys[start:end], own))
        end = shortest + matched - 1
        if matched and not _in_any(keys[start:end], others):
            best = (start, end)
    start, end = best
    known = {word for text in others for word in text.split()}
    while start < end - 1 and keys[start] in known and keys[start].islower():
        start += 1
    while start < end - 1 and keys[end - 1] in known and keys[end - 1].islower():
        end -= 1
    return start, end


def _in_any(words: Sequence[str], texts: Sequence[str]) -> bool:
    return any(f" {' '.join(words)} " in text for text in texts)


def _key(word: str) -> str:
    """A word without the marks at its end, so that "Taxi!," and "Taxi!'s" and "Taxi!" are one; case is kept."""
    return re.sub(r"['’]s$", "", word.strip(",;:?!.\"'“”")).strip(",;:?!.\"'“”") or word


def _label(question: str, words: Sequence[str], span: tuple[int, int]) -> str:
    start, end = span
    text = " ".join(words[start:end]).rstrip(",;:")
    if text and end == len(words):
        text = text.removesuffix("?").removesuffix(".")
    return re.sub(r"['’]s$", "", text)
