"""Which operation a question asks for, read from its own words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from serving.executor.operations.quantities import NUMBER_WORDS

YES_NO = re.compile(
    r"^\s*(?:[\w\s]{,30}[,:?]\s)?(is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b(?! you\b)",
    re.IGNORECASE,
)
_WORDS = {
    "early": "earlier earliest first before older oldest elder eldest sooner soonest",
    "late": "recent recently later latest last after newer newest younger youngest",
    "more": "more most longer longest larger largest bigger biggest greater greatest higher highest taller tallest "
    "heavier heaviest deeper deepest farther farthest further furthest wider widest faster fastest",
    "less": "less least fewer fewest shorter shortest smaller smallest lower lowest lighter lightest shallower "
    "shallowest nearer nearest closer closest narrower narrowest slower slowest",
}
_DIRECTIONS = {word: direction for direction, words in _WORDS.items() for word in words.split()}
AGE = frozenset(["older", "oldest", "elder", "eldest", "younger", "youngest"])


VALUE_ASKED = re.compile(r"\s*(when|how|(in |on )?(what|which) (year|date|month|day))\b", re.IGNORECASE)
NEGATED = re.compile(r"\b(?:not|no|neither|nor|except|[a-z]+n['’]t)\b")  # small letters: "Don't Look Now" is a title
_COMPARED = "|".join(word for word in _DIRECTIONS if word.endswith(("er", "more", "less")) and word != "after")
_NUMBER = rf"(?:[$€£¥]?\d|(?:an?|half|{'|'.join(NUMBER_WORDS)})\b)"
_BOUND = re.compile(rf"\b(?:(?:{_COMPARED}) than {_NUMBER}|at (?:least|most|first|last)\b)")  # a condition on each one
_BY_HOW_MUCH = rf"[Hh]ow (?:much|many) (?:(?:square )?(?P<noun>\w+) )?(?P<than>{_COMPARED})"
DIFFERENCE = re.compile(rf"\b(?:apart|differ|difference|lie between|{_BY_HOW_MUCH})\b")


def needs_judgement(question: str) -> bool:
    """Whether a question asks for something that its parts' answers, one after the other, do not say."""
    if order(question, ()) or YES_NO.match(question) or DIFFERENCE.search(question):
        return True
    return (
        re.search(r"\b(or|than|same|both|common|share|compare|how many|why|which of|between)\b", question, re.I)
        is not None
    )


def order(question: str, labels: Sequence[str], asked: Sequence[str] = ()) -> tuple[str, str] | None:
    """The comparing word outside the candidates, and its direction: "early", "late", "more" or "less"."""
    for label in filter(None, labels):
        question = question.replace(label, " ")
    question = _BOUND.sub(" ", re.sub(r"\b(more|most|less|least) (?=recent)", "", question))
    words = [word for word in re.findall(r"\b[a-z]+\b", question) if word in _DIRECTIONS]
    known = {
        "first",
        *re.findall(r"\b[a-z]+\b", " ".join(asked)),
    }  # "the largest city" is a description, not a comparison
    word = next((word for word in words if word not in known), words[0] if words else None)
    return (word, _DIRECTIONS[word]) if word else None
