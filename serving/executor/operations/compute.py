"""Which operation a question asks for over the answers of its parts, done."""

from __future__ import annotations

import re
from collections.abc import Sequence

from serving.executor.operations.arithmetic import asks_arithmetic, asks_difference, difference, total
from serving.executor.operations.candidates import candidates
from serving.executor.operations.comparison import comparison, lifetimes, superlative
from serving.executor.operations.counting import count
from serving.executor.operations.parts import MOST_CHARACTERS, Merged, Part, size_of
from serving.executor.operations.sameness import same
from serving.executor.operations.sets import common
from serving.executor.operations.wording import NEGATED, VALUE_ASKED, YES_NO, order


def compute(question: str, parts: Sequence[Part]) -> Merged | None:
    """The answer of `question` by code over the answers of its parts, or None."""
    if not parts or size_of(parts) > MOST_CHARACTERS:
        return None
    if not all(part.answers and part.whole for part in parts) or NEGATED.search(question):
        return None
    if len(parts) == 2 and asks_difference(question):
        return difference(question, [part.answers[0] for part in parts]) if _single(parts) else None
    several = len(parts) > 1
    alike = several and re.search(r"\b(same|both|share[sd]?|common|alike|identical|equal)\b", question)
    if alike and YES_NO.match(question):
        return same(question, parts)
    if asks_count(question):
        return count(question, parts)
    if asks_arithmetic(question) and (computed := total(question, _values(parts))):
        return computed
    if alike:
        return common(parts)
    if order(question, ()) is None or re.search(r"\beach\b", question) or (several and VALUE_ASKED.match(question)):
        return None
    if len(parts) == 4 and re.search(r"\b(lived|life ?span|lifetime)\b", question):
        lives = lifetimes(parts)
        if lives is None:
            return None
        parts = lives
    labels = candidates(question, [part.questions for part in parts]) if several else []
    found = order(question, labels, [text for part in parts for text in part.questions])
    if found is None:
        return None
    return comparison(question, parts, labels, *found) if several else superlative(question, parts[0], *found)


def asks_count(question: str) -> bool:
    return re.search(r"\b(how many|number of)\b", question, re.IGNORECASE) is not None


def _single(parts: Sequence[Part]) -> bool:
    return all(len(part.answers) == 1 for part in parts)


def _values(parts: Sequence[Part]) -> list[str]:
    return [answer for part in parts for member in part.members for answer in member.answers]
