"""What a question calls the parts of a comparison: `=> argmax` answers with a name, and the question has it.

It is a rule over words, in any language: with it .977 of 2WikiMultiHopQA's comparisons are right over gold answers of
their leaves, without it .174 (`part_names` in a run's `ablation`, docs/results.md).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence


def find_labels(question: str, parts: Sequence[Sequence[str]]) -> list[str]:
    """What the question calls each part: the longest span of it that stands in the part's questions and in those of no
    other part, or "". Of a part with one question only the last ones of others count: in "Ayr or its twin city" Ayr is
    named on the way to the other, too.

    >>> find_labels("Which came first, Taxi! or What Now??", [["When did Taxi! come?"], ["When did What Now? come?"]])
    ['Taxi!', 'What Now?']
    """
    words = question.split()
    keys = [_key(word) for word in words]
    texts = [[f" {' '.join(map(_key, text.split()))} " for text in part] for part in parts]
    labels = []
    for number, own in enumerate(texts):
        told = slice(None) if len(own) > 1 else slice(-1, None)
        others = [text for other, part in enumerate(texts) if other != number for text in part[told]]
        start, end = _find_longest(keys, own, others)
        text = " ".join(words[start:end]).rstrip(",;:")
        if text and end == len(words):
            text = text.removesuffix("?").removesuffix(".")
        labels.append(_without_possessive(text))
    return labels


def _find_longest(keys: Sequence[str], own: Sequence[str], others: Sequence[str]) -> tuple[int, int]:
    best = (0, 0)
    for start in range(len(keys)):
        shortest = start + best[1] - best[0] + 1
        ends = range(shortest, len(keys) + 1)  # of spans that stand in a text only where every shorter one does
        matched = bisect_left(ends, True, key=lambda end: not _stands_in(keys[start:end], own))
        end = shortest + matched - 1
        if matched and not _stands_in(keys[start:end], others):
            best = (start, end)
    start, end = best
    known = {word for text in others for word in text.split()}
    while start < end - 1 and keys[start] in known and keys[start].islower():
        start += 1
    while start < end - 1 and keys[end - 1] in known and keys[end - 1].islower():
        end -= 1
    return start, end


def _stands_in(words: Sequence[str], texts: Sequence[str]) -> bool:
    return any(f" {' '.join(words)} " in text for text in texts)


def _key(word: str) -> str:
    """A word without the marks at its end, so that "Taxi!," and "Taxi!'s" and "Taxi!" are one; case is kept."""
    return _without_possessive(word.strip(",;:?!.\"'“”")).strip(",;:?!.\"'“”") or word


def _without_possessive(text: str) -> str:
    return re.sub(r"['’]s$", "", text)
