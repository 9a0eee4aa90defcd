"""How values compare: which of several is the greatest, whether two are the same, whether one meets a condition.

Values are dates, times of day, numbers, quantities and names (`revelator.computing.values`); names are compared without
case, accents and articles, countries under all their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from pint import Quantity

from revelator.computing.values import normalise_country, parse_clock, parse_date, parse_quantity
from revelator.plans.operations import Condition

Span = tuple[float, float]
_SYMBOLS = re.compile(r"[^\w\s.,:;!?'\"()&’‘“”-]")  # what a name is not the same without


def read_amounts(values: Sequence[str]) -> list[Quantity] | None:
    """The values as quantities of one dimension, or None."""
    amounts = [amount for value in values if (amount := parse_quantity(value)) is not None]
    if not values or len(amounts) < len(values) or len({amount.dimensionality for amount in amounts}) > 1:
        return None
    return amounts


def find_extremes(values: Sequence[str], *, greatest: bool) -> list[int]:
    """Indices of the least or the greatest of dates, times of day or quantities, several where they tie; [] where the
    values have no common type, or a date that gives its year alone leaves open which one is first."""
    keys: list[Any] | None = _read_all(values, parse_date)
    if keys:
        spans = [key.days if not greatest else (-key.days[1], -key.days[0]) for key in keys]
        first = min(spans)
        ties = [place for place, span in enumerate(spans) if span == first]
        clear = all(span[0] > first[1] for span in spans if span != first)
        return ties if clear else []
    keys = _read_all(values, parse_clock)
    if keys is None:
        amounts = read_amounts(values)
        keys = [amount.to_base_units().magnitude for amount in amounts] if amounts else []
    best = (max if greatest else min)(keys, default=None)
    return [place for place, key in enumerate(keys) if key == best]


def meets(value: str, condition: Condition) -> bool | None:
    """Whether a value meets a condition; None where that cannot be known. A date that says less than a day meets it
    where each day does that it may mean. A number without a unit has the unit of the value.

    >>> [meets(value, Condition(">", "1980")) for value in ("12 May 1981", "1980", "Ayr")]
    [True, False, None]
    """
    sign, than = condition.sign, condition.value
    spans = _read_spans(value, than)
    if sign in ("=", "!="):
        return _negate_if(sign == "!=", are_alike(value, than) if spans is None else _is_within(*spans))
    if spans is None:
        return None
    (first, last), (start, end) = spans
    if sign in ("<", ">="):
        return _negate_if(sign == ">=", True if last < start else False if first >= start else None)
    return _negate_if(sign == "<=", True if first > end else False if last <= end else None)


def _negate_if(negated: bool, holds: bool | None) -> bool | None:
    return holds if holds is None else holds != negated


def _is_within(one: Span, other: Span) -> bool | None:
    """Whether a value is what another one says, or a day of the month or year that this says."""
    if other[0] <= one[0] and one[1] <= other[1]:
        return True
    return False if one[1] < other[0] or other[1] < one[0] else None


def _read_spans(value: str, than: str) -> tuple[Span, Span] | None:
    """The least and the greatest that each of two values may mean, on one scale; None where there is none."""
    if dates := _read_all([value, than], parse_date):
        return dates[0].days, dates[1].days
    if clocks := _read_all([value, than], parse_clock):
        return (clocks[0], clocks[0]), (clocks[1], clocks[1])
    one, other = parse_quantity(value), parse_quantity(than)
    if one is None or other is None or not (other.unitless or one.is_compatible_with(other)):
        return None
    there = other.magnitude if other.unitless else other.to(one.units).magnitude
    here = there if math.isclose(one.magnitude, there) else one.magnitude
    return (here, here), (there, there)


def _read_all(values: Sequence[str], read: Callable[[str], Any]) -> list[Any] | None:
    found = [read(value) for value in values]
    return None if None in found or not found else found


def are_alike(one: str, other: str) -> bool | None:
    """Whether two answers are one value; None where that cannot be known: "Ayr" and "Ayr, Scotland", 1957 and May 1957.

    >>> [are_alike("U.S.", "American"), are_alike("5 km", "5,000 m"), are_alike("Ayr", "Ayr, Scotland")]
    [True, True, None]
    """
    if one == other:
        return True
    if dates := _read_all([one, other], parse_date):
        (first, last), (first_too, last_too) = dates[0].days, dates[1].days
        return True if dates[0] == dates[1] else False if last < first_too or last_too < first else None
    if clocks := _read_all([one, other], parse_clock):
        return clocks[0] == clocks[1]
    if amounts := read_amounts([one, other]):
        return math.isclose(amounts[0].magnitude, amounts[1].to(amounts[0].units).magnitude)
    if _read_all([one, other], parse_quantity):
        return None  # of different kinds
    key, against = normalise_country(one), normalise_country(other)
    if key == against:
        return _SYMBOLS.findall(one) == _SYMBOLS.findall(other)  # C# is not C++
    words, others = set(key.split()), set(against.split())
    return None if words <= others or others <= words else False
