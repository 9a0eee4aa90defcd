"""`Filter` by code: which entities meet a condition, as far as a graph's facts can tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.knowledge.labels import key_of
from serving.values import parse_date, parse_quantity

_OTHER = re.compile(r"^\s*(?:is |are |that (?:is|are) )?(?:other than|not|except|besides)\s+(.+?)\s*$", re.IGNORECASE)
_BOUND = re.compile(
    r"\b(?P<word>after|since|from|later than|before|until|earlier than|between"
    r"|more than|over|above|less than|under|below)"
    r"\s+(?:the year\s+)?(?P<low>\d[\d,.]*)(?:\s+(?:and|to)\s+(?P<high>\d[\d,.]*))?",
    re.IGNORECASE,
)
UPPER = frozenset(["before", "until", "earlier than", "less than", "under", "below"])
INCLUSIVE = frozenset(["since", "from", "until"])
QUANTITIES = frozenset(["more than", "over", "above", "less than", "under", "below"])
DATE_CHARACTERS = 32  # a longer value is a title or a sentence that happens to hold a year
LAST_YEAR = 2200  # a larger number is a count


@dataclass(frozen=True, slots=True)
class Fact:
    """One edge at an entity: the relation's name, the text at its other end, and whether it points at the entity."""

    relation: str
    value: str
    inverse: bool = False


def others(condition: str, entities: Sequence[str]) -> tuple[str, ...] | None:
    """The entities left by "other than X", or None when the condition is another one."""
    match = _OTHER.match(condition)
    return tuple(e for e in entities if key_of(e) != key_of(match[1])) if match else None


def meeting(condition: str, facts: Mapping[str, Sequence[Fact]]) -> list[str] | None:
    """The entities whose facts meet the condition, in order; None when it names nothing that the facts can decide.

    A condition with a bound ("after 1990", "between 2000 and 2010") is held against the numbers and years among the
    values; any other against the values that it names, all of which an entity must have. Where the condition also
    names a relation, only facts of that relation count.
    """
    key = f" {key_of(condition)} "
    named = {f.relation for known in facts.values() for f in known if f" {key_of(f.relation)} " in key}
    usable = {e: [f for f in known if not named or f.relation in named] for e, known in facts.items()}
    if bound := _BOUND.search(condition):
        within = {e: _within(known, bound) for e, known in usable.items()}
        decided = any(verdict is not None for verdict in within.values())
        return [e for e, verdict in within.items() if verdict] if decided else None
    values = {k for known in usable.values() for f in known if (k := key_of(f.value)) and f" {k} " in key}
    wanted = {v for v in values if not any(v != w and f" {v} " in f" {w} " for w in values)}
    if not wanted:
        return None
    return [e for e, known in usable.items() if wanted <= {key_of(f.value) for f in known}]


def _within(facts: Sequence[Fact], bound: re.Match[str]) -> bool | None:
    """Whether any date (or, after "more than" and the like, any number) lies within; None when there is none."""
    word = bound["word"].lower()
    read = _quantity if word in QUANTITIES else _year
    numbers = [number for fact in facts if not fact.inverse and (number := read(fact.value)) is not None]
    low, high = read(bound["low"]), read(bound["high"] or "")
    if not numbers or low is None:
        return None
    if high is not None:
        return any(low <= number <= high for number in numbers)
    upper, inclusive = word in UPPER, word in INCLUSIVE
    return any((n < low if upper else n > low) or (inclusive and n == low) for n in numbers)


def _year(text: str) -> float | None:
    date = parse_date(text) if len(text) <= DATE_CHARACTERS else None
    return float(date.year) if date and date.year <= LAST_YEAR else None


def _quantity(text: str) -> float | None:
    quantity = parse_quantity(text) if text[:1].isdigit() else None
    return quantity.value if quantity else None
