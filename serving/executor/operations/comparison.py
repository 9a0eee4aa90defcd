"""Comparisons and superlatives: whose date is earlier, whose number greater."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from serving.executor.operations.candidates import is_described
from serving.executor.operations.dates import Date, parse_date
from serving.executor.operations.parts import MOST_COMPARED, Member, Merged, Part
from serving.executor.operations.quantities import parse_quantity
from serving.executor.operations.whole import is_value
from serving.executor.operations.wording import AGE, VALUE_ASKED, YES_NO


def lifetimes(parts: Sequence[Part]) -> list[Part] | None:
    """Birth and death of each of two people as one part a person: the days between. None where months or days that are
    not given could turn the comparison round."""
    dates = [parse_date(part.answers[0]) for part in parts if is_value(part.answers[0])]
    known = [date for date in dates if date and date.last is None]
    if len(known) < len(parts):
        return None
    spans = [round(died.day_number - born.day_number) for born, died in (known[:2], known[2:])]
    if abs(spans[0] - spans[1]) <= sum(2 if date.day else 16 if date.month else 183 for date in known):
        return None
    return [
        Part((*begin.questions, *end.questions), (Member(end.members[0].lineage, (f"{days} days",)),))
        for begin, end, days in zip(parts[::2], parts[1::2], spans, strict=True)
    ]


def extreme(question: str, values: Sequence[str], word: str, direction: str) -> int | None:
    """Index of the one value that is earliest, latest, most or least; None when values cannot be compared or tie."""
    if len(values) > MOST_COMPARED or not all(map(is_value, values)):
        return None
    sign = 1 if direction in ("early", "less") else -1
    dates = [parse_date(value) for value in values]
    if word in ("longer", "longest", "shorter", "shortest") and "existed" in question and all(dates):
        direction = "early" if word.startswith("long") else "late"
    if direction in ("early", "late"):
        if all(dates):
            return _earliest([d for d in dates if d], last=direction == "late")
        if word not in AGE:
            return None
        sign = -sign  # of two ages, the older is the greater
    quantities = [parse_quantity(value) for value in values]
    if not all(quantities) or len({q.dimension for q in quantities if q}) > 1:
        return None
    keys = [sign * q.value for q in quantities if q]
    return keys.index(min(keys)) if keys.count(min(keys)) == 1 else None


def _earliest(dates: Sequence[Date], *, last: bool) -> int | None:
    for index, date in enumerate(dates):
        others = [other for position, other in enumerate(dates) if position != index]
        if all((other.before(date) if last else date.before(other)) for other in others):
            return index
    return None


def comparison(question: str, parts: Sequence[Part], labels: Sequence[str], word: str, direction: str) -> Merged | None:
    values = [part.answers[0] for part in parts]
    if any(len(part.answers) != 1 for part in parts):
        if direction not in ("more", "less") or all(a[:1].isdigit() for part in parts for a in part.answers):
            return None
        values = [str(len(part.answers)) for part in parts]
    winner = extreme(question, values, word, direction)
    if winner is None:
        return None
    if YES_NO.match(question) and " or " not in question:
        if len(parts) != 2 or not all(labels):
            return None
        first = min(range(2), key=lambda i: question.find(labels[i]))
        return Merged(("yes" if winner == first else "no",), f"comparison: {word}")
    lineage = parts[winner].members[0].lineage
    answer = _asked_for(question, lineage) or labels[winner]
    if lineage and is_described(question, labels[winner]):
        answer = list(lineage.values())[-1]
    return Merged((answer,), f"comparison: {word}") if answer else None


_HEAD = re.compile(
    r"\b(?:which|what)\s+(?:of (?:the )?)?(.*?)(?:['’]s\b|\b(?:whose|who|that|of|has|have|is|are|was|were|did|do)\b|$)",
    re.IGNORECASE,
)


def _asked_for(question: str, lineage: Mapping[str, str]) -> str | None:
    """The value on the way that the question asks for by its name: "which director …" the director."""
    head = _HEAD.search(question)
    nouns = set(head[1].lower().split()[:3]) if head else set()
    named = (value for name, value in lineage.items() if {name, name + "s", name.removesuffix("s")} & nouns)
    return next(named, None)


def superlative(question: str, part: Part, word: str, direction: str) -> Merged | None:
    if len(part.members) < 2 or any(len(member.answers) != 1 for member in part.members):
        return None
    best = extreme(question, [member.answers[0] for member in part.members], word, direction)
    if best is None:
        return None
    member = part.members[best]
    if VALUE_ASKED.match(question):
        return Merged(member.answers, f"superlative: {word}")
    varying = {
        name: value
        for name, value in member.lineage.items()
        if len({other.lineage.get(name) for other in part.members}) > 1
    }
    answer = _asked_for(question, varying) or next(iter(varying.values()), None)
    return Merged((answer,), f"superlative: {word}") if answer else None
