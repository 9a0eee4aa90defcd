"""`Filter` by code: which entities meet a condition, as far as a graph's facts can tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from revelator.computing.values import parse_date, parse_quantity
from serving.knowledge.labels import fold_label

_OTHER = re.compile(r"^\s*+(?:is |are |that (?:is|are) )?(?:other than|not|except|besides)\s++(.+)$", re.IGNORECASE)
_BOUND = re.compile(
    r"\b(?P<word>after|since|from|later than|before|until|earlier than|between"
    r"|more than|over|above|less than|under|below)"
    r"\s+(?:the year\s+)?(?P<low>\d[\d,.]*)(?:\s+(?:and|to)\s+(?P<high>\d[\d,.]*))?",
    re.IGNORECASE,
)
_LISTED = re.compile(r",|\band\b|\bor\b", re.IGNORECASE)
# What says more than "all of these hold", in what is left of a condition as `fold_label` folds it ("isn t").
_MORE = re.compile(
    r"\b(?:not|no|non|never|none|nobody|nothing|cannot|[a-z]+n t|neither|nor|or|without|lack\w*|exclud\w+|except"
    r"|besides|other|unlike|but|only|if|unless|rather|instead|at least|at most|hardly|barely|rarely|seldom)\b"
)
UPPER = frozenset(["before", "until", "earlier than", "less than", "under", "below"])
INCLUSIVE = frozenset(["since", "from", "until"])
QUANTITIES = frozenset(["more than", "over", "above", "less than", "under", "below"])
CONDITION_CHARACTERS = 2_000  # each value of each fact is looked for in it
DATE_CHARACTERS = 32  # a longer value is a title or a sentence that happens to hold a year
LAST_YEAR = 2200  # a larger number is a count


@dataclass(frozen=True, slots=True)
class Fact:
    """One edge at an entity: the relation's name, the text at its other end, and whether it points at the entity."""

    relation: str
    value: str
    inverse: bool = False


def exclude_named(condition: str, entities: Sequence[str]) -> tuple[str, ...] | None:
    """The entities left by "other than X", or "X and Y", X and Y being among them; None for any other condition."""
    if not (match := _OTHER.match(condition)):
        return None
    keys = {fold_label(entity) for entity in entities}
    whole = fold_label(match[1].rstrip())
    named = {whole} if whole in keys else {fold_label(part) for part in _LISTED.split(match[1].rstrip())}
    return tuple(e for e in entities if fold_label(e) not in named) if named <= keys else None


def judge_entities(condition: str, facts: Mapping[str, Sequence[Fact]]) -> dict[str, bool | None]:
    """Whether each entity meets the condition, in order; None where its facts do not tell.

    Bounds ("after 1990", "between 2000 and 2010") are held against the numbers and years among the values, and all
    values that the condition names must be among them. Where the condition also names a relation, its facts alone count
    for what can be one of its values. What says more, such as "not" or "or", is decided for no entity.
    """
    read = _read_condition(condition, facts)
    return {entity: read.is_met_by(known) if read else None for entity, known in facts.items()}


@dataclass(frozen=True, slots=True)
class _Condition:
    """What was read in a condition. `relations` and values are keys; the values `of` them and, with `bounds_of`, the
    bounds are looked for in their facts, all else in any."""

    bounds: tuple[re.Match[str], ...]
    values: frozenset[str]
    relations: frozenset[str]
    of: frozenset[str]
    bounds_of: bool

    def is_met_by(self, facts: Sequence[Fact]) -> bool | None:
        own = [fact for fact in facts if fold_label(fact.relation) in self.relations]
        parts = [_is_within(own if self.bounds_of else facts, bound) for bound in self.bounds]
        for value in self.values:
            among = own if value in self.of else facts
            parts.append(value in {fold_label(fact.value) for fact in among} if among else None)
        return False if False in parts else None if None in parts else True


def _read_condition(condition: str, facts: Mapping[str, Sequence[Fact]]) -> _Condition | None:
    """What the condition says, or None when it names no bound and no value, or more than code is sure of."""
    if len(condition) > CONDITION_CHARACTERS:
        return None
    bounds = tuple(_BOUND.finditer(condition))
    rest = f" {fold_label(_BOUND.sub(' ', condition))} "
    every = [fact for known in facts.values() for fact in known]
    names = {fold_label(fact.relation) for fact in every}
    relations = frozenset(name for name in names if f" {name} " in rest)
    own = [fact for fact in every if fold_label(fact.relation) in relations]
    said = {key for fact in every if (key := fold_label(fact.value)) and f" {key} " in rest}
    values = frozenset(v for v in said if not any(v != w and f" {v} " in f" {w} " for w in said))
    for text in (*values, *relations):
        rest = rest.replace(f" {text} ", " ")
    if not (bounds or values) or _MORE.search(rest):
        return None
    of = frozenset(values & {fold_label(fact.value) for fact in own})
    bounds_of = any(_is_within(own, bound) is not None for bound in bounds)
    return _Condition(bounds, values, relations, of, bounds_of)


def _is_within(facts: Sequence[Fact], bound: re.Match[str]) -> bool | None:
    """Whether any date (or, after "more than" and the like, any number) lies within; None when there is none."""
    word = bound["word"].lower()
    read = _read_quantity if word in QUANTITIES else _read_year
    numbers = [number for fact in facts if not fact.inverse and (number := read(fact.value)) is not None]
    low, high = read(bound["low"]), read(bound["high"] or "")
    if not numbers or low is None:
        return None
    if high is not None:
        return any(low <= number <= high for number in numbers)
    upper, inclusive = word in UPPER, word in INCLUSIVE
    return any((n < low if upper else n > low) or (inclusive and n == low) for n in numbers)


def _read_year(text: str) -> float | None:
    date = parse_date(text) if len(text) <= DATE_CHARACTERS else None
    return float(date.year) if date and date.year <= LAST_YEAR else None


def _read_quantity(text: str) -> float | None:
    quantity = parse_quantity(text) if text[:1].isdigit() else None
    return None if quantity is None else quantity.to_base_units().magnitude
