"""Comparisons and superlatives: whose date is earlier, whose number greater."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from revelator.computing.values import Date, parse_clock, parse_date, parse_quantity
from serving.merge.parts import Member, MergedAnswer, Part
from serving.merge.wording import AGE, VALUE_ASKED, YES_NO, find_labels, find_order, is_described

MOST_COMPARED = 500  # values that are compared, each with each
_RATE = re.compile(r" (?:per|an?)(?: [a-z]{1,20}){1,3}$")  # "62 crowns per square metre", "20 euros an hour"
_LIVED = re.compile(r"\b(lived|life ?span|lifetime)\b")
_HEAD = re.compile(
    r"\b(?:which|what)\s+(?:of (?:the )?)?(.*?)(?:['’]s\b|\b(?:whose|who|that|of|has|have|is|are|was|were|did|do)\b|$)",
    re.IGNORECASE,
)


def compare(question: str, parts: Sequence[Part]) -> MergedAnswer | None:
    """The one of several parts, or of one part's members, that the question asks for by a comparing word."""
    several = len(parts) > 1
    if find_order(question) is None or re.search(r"\beach\b", question):
        return None
    if not several:
        found = find_order(question, (), parts[0].questions)
        return _find_best_member(question, parts[0], *found) if found else None
    if VALUE_ASKED.match(question):
        return None
    if len(parts) == 4 and _LIVED.search(question):
        parts = _make_lifetimes(parts)
    labels = find_labels(question, [part.questions for part in parts])
    found = find_order(question, labels, [text for part in parts for text in part.questions])
    return _find_best_part(question, parts, labels, *found) if found and parts else None


def _make_lifetimes(parts: Sequence[Part]) -> list[Part]:
    """Birth and death of each of two people as one part a person: the days between. None of them where months or days
    that are not given could turn the comparison round."""
    dates = [parse_date(part.answers[0]) for part in parts]
    if not all(dates):
        return []
    born, died, born_too, died_too = [date.days for date in dates if date]
    (least, most), (least_too, most_too) = (
        (last[0] - first[1], last[1] - first[0]) for first, last in ((born, died), (born_too, died_too))
    )
    if least <= most_too and least_too <= most:
        return []
    return [
        Part((*begin.questions, *end.questions), (Member(end.members[0].lineage, (f"{days} days",)),))
        for begin, end, days in zip(parts[::2], parts[1::2], (most, most_too), strict=True)
    ]


def find_extreme(values: Sequence[str], word: str, direction: str, *, existed: bool = False) -> int | None:
    """Index of the one value that is earliest, latest, most or least; None when values cannot be compared or tie.

    `existed`: what existed longest began earliest.
    """
    if len(values) > MOST_COMPARED:
        return None
    dates = [date for value in values if (date := parse_date(value))]
    if existed and word in ("longer", "longest", "shorter", "shortest") and len(dates) == len(values):
        direction = "early" if word.startswith("long") else "late"
    if direction in ("early", "late"):
        if len(dates) == len(values):
            return _find_earliest(dates, last=direction == "late")
        times = [time for value in values if (time := parse_clock(value)) is not None]
        if len(times) == len(values):
            best = min(times) if direction == "early" else max(times)
            return times.index(best) if times.count(best) == 1 else None
        if word not in AGE:
            return None
        direction = "more" if direction == "early" else "less"  # of two ages, the older is the greater
    if len({rate[0] if (rate := _RATE.search(value)) else "" for value in values}) == 1:  # of one rate, amounts compare
        values = [_RATE.sub("", value) for value in values]
    quantities = [quantity for value in values if (quantity := parse_quantity(value)) is not None]
    if len(quantities) < len(values) or len({quantity.dimensionality for quantity in quantities}) > 1:
        return None
    amounts = [quantity.to_base_units().magnitude for quantity in quantities]
    best = max(amounts) if direction == "more" else min(amounts)
    return amounts.index(best) if amounts.count(best) == 1 else None


def _find_earliest(dates: Sequence[Date], *, last: bool) -> int | None:
    for index, date in enumerate(dates):
        others = [other for position, other in enumerate(dates) if position != index]
        if all((other.is_before(date) if last else date.is_before(other)) for other in others):
            return index
    return None


def _find_best_part(
    question: str, parts: Sequence[Part], labels: Sequence[str], word: str, direction: str
) -> MergedAnswer | None:
    values = [part.answers[0] for part in parts]
    if any(len(part.answers) != 1 for part in parts):  # who has more of them
        if direction not in ("more", "less") or all(a[:1].isdigit() for part in parts for a in part.answers):
            return None
        values = [str(len(part.answers)) for part in parts]
    best = find_extreme(values, word, direction, existed="existed" in question)
    if best is None:
        return None
    if YES_NO.match(question) and " or " not in question:
        if len(parts) != 2 or not all(labels):
            return None
        first = min(range(2), key=lambda i: question.find(labels[i]))
        return MergedAnswer(("yes" if best == first else "no",), f"comparison: {word}", is_verdict=True)
    lineage = parts[best].members[0].lineage
    answer = _find_named_value(question, lineage) or labels[best]
    if lineage and is_described(question, labels[best]):
        answer = list(lineage.values())[-1]
    return MergedAnswer((answer,), f"comparison: {word}") if answer else None


def _find_best_member(question: str, part: Part, word: str, direction: str) -> MergedAnswer | None:
    members = list({(*member.lineage.values(), *member.answers): member for member in part.members}.values())
    if len(members) < 2 or any(len(member.answers) != 1 for member in members):
        return None
    best = find_extreme([member.answers[0] for member in members], word, direction)
    if best is None:
        return None
    if VALUE_ASKED.match(question):
        return MergedAnswer(members[best].answers, f"superlative: {word}")
    varying = {
        name: value
        for name, value in members[best].lineage.items()
        if len({other.lineage.get(name) for other in members}) > 1
    }
    answer = _find_named_value(question, varying) or next(iter(varying.values()), None)
    return MergedAnswer((answer,), f"superlative: {word}") if answer else None


def _find_named_value(question: str, lineage: Mapping[str, str]) -> str | None:
    """The value on the way that the question asks for by its name: "which director …" the director."""
    head = _HEAD.search(question)
    nouns = set(head[1].lower().split()[:3]) if head else set()
    named = (value for name, value in lineage.items() if {name, name + "s", name.removesuffix("s")} & nouns)
    return next(named, None)
