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
    amounts = _read_all(values, parse_quantity)
    return amounts if amounts and len({amount.dimensionality for amount in amounts}) == 1 else None


def _read_spans(values: Sequence[str]) -> list[Span] | None:
    """The least and the greatest that each value may mean, on one scale; None where they have no common type."""
    if dates := _read_all(values, parse_date):
        return [date.days for date in dates]
    points = _read_all(values, parse_clock)
    if points is None and (amounts := read_amounts(values)):
        points = [amount.to_base_units().magnitude for amount in amounts]
    return points and [(point, point) for point in points]


def _read_all(values: Sequence[str], read: Callable[[str], Any]) -> list[Any] | None:
    found = [read(value) for value in values]
    return None if None in found or not found else found


def find_extremes(values: Sequence[str], *, greatest: bool) -> list[int]:
    """Indices of the least or the greatest of dates, times of day or quantities, several where they tie; [] where the
    values have no common type, or a date that gives its year alone leaves open which one is first."""
    spans = _read_spans(values) or []
    if greatest:
        spans = [(-last, -first) for first, last in spans]
    best = min(spans, default=(0, 0))
    is_clear = all(span == best or span[0] > best[1] for span in spans)
    return [place for place, span in enumerate(spans) if is_clear and span == best]


def meets(value: str, condition: Condition) -> bool | None:
    """Whether a value meets a condition; None where that cannot be known. A date that says less than a day meets it
    where each day does that it may mean. A number without a unit has the unit of the value.

    >>> [meets(value, Condition(">", "1980")) for value in ("12 May 1981", "1980", "Ayr")]
    [True, False, None]
    """
    sign, than = condition.sign, condition.value
    spans = _read_pair(value, than)
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


def _read_pair(value: str, than: str) -> tuple[Span, Span] | None:
    """The spans of two values, equal where a rounding apart."""
    spans = _read_spans([value, than])
    if spans is None and (amounts := _read_all([value, than], parse_quantity)) and amounts[1].unitless:
        spans = [(amount.magnitude, amount.magnitude) for amount in amounts]
    if spans is None:
        return None
    one, other = spans
    return (other if all(map(math.isclose, one, other)) else one), other


def are_alike(one: str, other: str) -> bool | None:
    """Whether two answers are one value; None where that cannot be known: "Ayr" and "Ayr, Scotland", 1957 and May 1957.

    >>> [are_alike("U.S.", "American"), are_alike("5 km", "5,000 m"), are_alike("Ayr", "Ayr, Scotland")]
    [True, True, None]
    """
    if one == other:
        return True
    if spans := _read_spans([one, other]):
        if all(map(math.isclose, *spans)):
            return True
        return False if _is_within(*spans) is False else None
    if _read_all([one, other], parse_quantity):
        return None  # of different kinds
    key, against = normalise_country(one), normalise_country(other)
    if key == against:
        return _SYMBOLS.findall(one) == _SYMBOLS.findall(other)  # C# is not C++
    words, others = set(key.split()), set(against.split())
    return None if words <= others or others <= words else False
