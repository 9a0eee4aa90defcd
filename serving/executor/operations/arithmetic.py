"""Sums, averages and differences of numbers with units, and spans between dates."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date as day

from serving.executor.operations.dates import Date, parse_date
from serving.executor.operations.parts import Merged
from serving.executor.operations.quantities import number_text, parse_quantity, unit
from serving.executor.operations.whole import is_value
from serving.executor.operations.wording import DIFFERENCE

_SUM = re.compile(r"\b(total|altogether|combined|together|in all|sum)\b", re.IGNORECASE)
_AVERAGE = re.compile(r"^(?=\s*(?:what|how)\b).*\b(average|mean)\b", re.IGNORECASE)
_TIMES = re.compile(r"\b(when|year|date|day)\b", re.IGNORECASE)


def asks_arithmetic(question: str) -> bool:
    return _SUM.search(question) is not None or _AVERAGE.search(question) is not None


def total(question: str, values: Sequence[str]) -> Merged | None:
    """The sum or the average of two or more quantities of one dimension, in the unit that the question or the first
    value names."""
    quantities = [parse_quantity(value) for value in values if is_value(value)]
    known = [q for q in quantities if q]
    if len(known) < max(2, len(values)) or len({q.dimension for q in known}) > 1:
        return None
    if known[0].dimension == "" and _TIMES.search(question) and all(map(parse_date, values)):
        return None  # years are no quantities to add
    amount = sum(q.value for q in known)
    if _AVERAGE.search(question):
        return _written(amount / len(known), known[0].dimension, question, values[0], "average")
    return _written(amount, known[0].dimension, question, values[0], "sum") if _SUM.search(question) else None


def asks_difference(question: str) -> bool:
    """ "How many years older" does; "how many people older than …" does not, nor does "how many" alone."""
    asked = DIFFERENCE.search(question)
    if asked is None or asked["noun"] is None or asked["than"] in ("more", "fewer", "less"):
        return asked is not None
    return unit(asked["noun"].lower()) is not None


def difference(question: str, values: Sequence[str]) -> Merged | None:
    """How far two values lie apart, in the unit that the question or the first value names; dates in years or days."""
    if not all(map(is_value, values)):
        return None
    noun, asked = _asked(question)
    first, second = (parse_date(value) for value in values)
    if first and second and noun in ("year", "years", "day", "days"):
        apart = _years(first, second) if noun.startswith("year") else _days(first, second)
        return None if apart is None else Merged((number_text(apart),), "difference")
    one, other = (parse_quantity(value) for value in values)
    if one is None or other is None or one.dimension != other.dimension:
        return None
    if first and second and asked and asked[0] == "time":
        return None  # months between two years
    return _written(abs(one.value - other.value), one.dimension, question, values[0], "difference")


def _years(one: Date, other: Date) -> int | None:
    return abs(one.year - other.year) if one.last is None and other.last is None else None


def _days(one: Date, other: Date) -> int | None:
    """None for a date without a day, before the common era, or impossible."""
    try:
        first, second = (day(date.year, date.month or 0, date.day or 0) for date in (one, other))
    except ValueError:
        return None
    return abs((first - second).days)


_NOUN = re.compile(
    r"\bhow many (?:more |fewer |less )?(?P<square>square )?(?P<noun>\w+)"
    r"|\bin (?P<in_square>square )?(?P<in_noun>\w++)\s*+\?*+\s*+$",
    re.IGNORECASE,
)


def _asked(question: str) -> tuple[str, tuple[str, float] | None]:
    """The noun after "how many" or in "… in minutes?", and the unit that it names."""
    found = _NOUN.search(question)
    noun = ((found["noun"] or found["in_noun"]) if found else "").lower()
    return noun, unit(noun, squared=bool(found and (found["square"] or found["in_square"])))


def _written(amount: float, dimension: str, question: str, like: str, method: str) -> Merged | None:
    """`amount` (in the base unit of its dimension) as a bare number where the question names the unit, else as `like`
    is written."""
    if not math.isfinite(amount):
        return None
    _, asked = _asked(question)
    if asked and asked[0] == dimension:
        return Merged((_number(amount / asked[1]),), method)
    if not dimension:
        return Merged((_number(amount),), method)
    for square, word in re.findall(r"(square |sq\.? ?)?([a-z/]+[²2]?|[$€£¥%])", like, re.IGNORECASE):
        known = unit(word.lower().replace("²", "2"), squared=bool(square))
        if known and known[0] == dimension:
            number = _number(amount / known[1])
            before, after = (word, "") if word in "$€£¥" else ("", "%") if word == "%" else ("", f" {square}{word}")
            return Merged((f"{before}{number}{after}",), method)
    return None


def _number(amount: float) -> str:
    return number_text(round(amount, 6))
