"""Sums, averages and differences of numbers with units, and spans between dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date as day

from serving.merge.parts import Merged
from serving.values import Date, is_value, number_text, parse_date, parse_quantity, unit

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
        return Merged((_in_unit(amount / len(known), known[0].dimension, question, values[0]),), "average")
    if _SUM.search(question):
        return Merged((_in_unit(amount, known[0].dimension, question, values[0]),), "sum")
    return None


def difference(question: str, values: Sequence[str]) -> Merged | None:
    """How far two values lie apart, in the unit that the question names; dates in years."""
    noun = _counted(question)
    dates = [parse_date(one) for one in values]
    if noun == "years" and dates[0] and dates[1]:
        return Merged((str(abs(dates[0].year - dates[1].year)),), "difference")
    if noun == "days" and dates[0] and dates[1]:
        days = [_ordinal(date) for date in dates if date]
        return Merged((number_text(abs(days[0] - days[1])),), "difference") if days[0] and days[1] else None
    one, other = (parse_quantity(value) for value in values)
    if one is None or other is None or one.dimension != other.dimension:
        return None
    dimension, scale = unit(noun) or ("", 1.0)
    scale = scale if dimension == one.dimension else 1.0
    return Merged((number_text(round(abs(one.value - other.value) / scale, 6)),), "difference")


def _ordinal(date: Date) -> int:
    """The day's number in the Gregorian calendar; 0 for a date without a day, before the common era, or impossible."""
    try:
        return day(date.year, date.month or 0, date.day or 0).toordinal()
    except ValueError:
        return 0


def _counted(question: str) -> str:
    """The noun after "how many"."""
    asked = re.search(r"\bhow many (\w+)", question, re.IGNORECASE)
    return asked[1].lower() if asked else ""


def _in_unit(amount: float, dimension: str, question: str, like: str) -> str:
    """`amount` (in the base unit of its dimension) as a bare number where the question names the unit, else as `like`
    is written."""
    asked = unit(_counted(question))
    if asked and asked[0] == dimension:
        return _number(amount / asked[1])
    for word in re.findall(r"[^\W\d_]+[²2]?|[$€%]", like):
        known = unit(word.lower(), squared=f"square {word}" in like)
        if known and known[0] == dimension:
            number = _number(amount / known[1])
            return f"{word}{number}" if word in "$€" else f"{number}%" if word == "%" else f"{number} {word}"
    return _number(amount)


def _number(amount: float) -> str:
    return number_text(round(amount, 6))
