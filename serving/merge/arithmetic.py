"""How many, how much in all, how far apart: counts, sums, averages and differences of answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pint import Quantity, Unit

from revelator.computing.values import (
    Date,
    find_unit,
    is_value,
    normalise,
    parse_date,
    parse_quantity,
    write_number,
    write_quantity,
)
from serving.merge.parts import MergedAnswer, Part
from serving.merge.wording import DIFFERENCE, OF_SEVERAL, asks_count, asks_sum

_TIMES = re.compile(r"\b(when|year|date|day)\b", re.IGNORECASE)
_SINCE = re.compile(r"\b(after|before|since|until|later than|earlier than) (?:the year )?(\d{3,4})\b")
_NOUN = re.compile(
    r"\bhow many (?:more |fewer |less )?(?P<square>square )?(?P<noun>\w+)"
    r"|\bin (?P<in_square>square )?(?P<in_noun>\w++)\s*+\?*+\s*+$",
    re.IGNORECASE,
)


def count(question: str, parts: Sequence[Part]) -> MergedAnswer | None:
    """How many different answers there are, or how many members of a fan-out meet a condition."""
    if len(parts) == 1 and len(parts[0].members) > 1 and OF_SEVERAL.search(question):
        return count_meeting(question, parts[0])
    values = [member.answers for part in parts for member in part.members]
    numbers = [re.search(r"\d", one) or is_value(one) for one, *more in values if not more]
    if len(numbers) == len(values) and all(numbers):
        return add_up(question, parts)
    if any(numbers) or any(asks_count(part.questions[-1]) for part in parts):
        return None
    keys = [{normalise(answer) for answer in part.answers} for part in parts]
    both = len(parts) > 1 and re.search(r"\b(both|common)\b", question)
    counted = set.intersection(*keys) if both else set.union(*keys)
    return MergedAnswer((str(len(counted)),), "count") if counted else None


def count_meeting(question: str, part: Part) -> MergedAnswer | None:
    """How many members of a fan-out meet the condition in the question: their value is named there, or their date lies
    after or before a year that is."""
    if bound := _SINCE.search(question):
        year, word = int(bound[2]), bound[1]
        dates = [date for one, *more in (m.answers for m in part.members) if not more and (date := parse_date(one))]
        if len(dates) < len(part.members):
            return None
        later, inclusive = word in ("after", "since", "later than"), word in ("since", "until")
        inside = [d for d in dates if (d.year > year if later else d.year < year) or (inclusive and d.year == year)]
        return MergedAnswer((str(len(inside)),), f"count: {word}")
    text = f" {normalise(question)} "
    named = {key for answer in part.answers if f" {(key := normalise(answer))} " in text}
    if not named:
        return None
    value = max(named, key=lambda key: (text.rindex(f" {key} "), len(key)))
    meeting = sum(value in map(normalise, member.answers) for member in part.members)
    return MergedAnswer((str(meeting),), "count: of the value named")


def add_up(question: str, parts: Sequence[Part]) -> MergedAnswer | None:
    """The sum or the average of two or more quantities of one dimension, in the unit that the question or the first
    value names."""
    values = [answer for part in parts for member in part.members for answer in member.answers]
    quantities = [quantity for value in values if (quantity := parse_quantity(value)) is not None]
    method = asks_sum(question)
    if method is None or len(quantities) < max(2, len(values)):
        return None
    if len({quantity.dimensionality for quantity in quantities}) > 1:
        return None
    if _TIMES.search(question) and all(map(parse_date, values)):
        return None  # years are no quantities to add
    amount = sum(quantities[1:], quantities[0])
    return _write(amount / len(quantities) if method == "average" else amount, question, values[0], method)


def asks_difference(question: str) -> bool:
    """ "How many years older" does; "how many people older than …" does not, nor does "how many" alone."""
    asked = DIFFERENCE.search(question)
    if asked is None or asked["noun"] is None or asked["than"] in ("more", "fewer", "less"):
        return asked is not None
    return find_unit(asked["noun"].lower()) is not None


def subtract(question: str, parts: Sequence[Part]) -> MergedAnswer | None:
    """How far the answers of two parts lie apart, in the unit that the question or the first of them names; dates in
    years or days. None where a part asked for a difference itself."""
    values = [answer for part in parts for member in part.members for answer in member.answers]
    if len(values) != 2 or any(asks_difference(part.questions[-1]) for part in parts):
        return None
    noun, unit = _find_asked_unit(question)
    first, second = map(parse_date, values)
    if first and second and noun in ("year", "years", "day", "days"):
        apart = abs(first.year - second.year) if noun.startswith("year") else _count_days(first, second)
        return None if apart is None else MergedAnswer((write_number(apart),), "difference")
    one, other = map(parse_quantity, values)
    if one is None or other is None or one.dimensionality != other.dimensionality:
        return None
    if first and second and unit is not None and unit.is_compatible_with("second"):
        return None  # months between two years
    return _write(abs(one - other), question, values[0], "difference")


def _count_days(one: Date, other: Date) -> int | None:
    """None for a date without a day."""
    return abs(one.days[0] - other.days[0]) if one.day and other.day else None


def _find_asked_unit(question: str) -> tuple[str, Unit | None]:
    """The noun after "how many" or in "… in minutes?", and the unit that it names."""
    found = _NOUN.search(question)
    noun = ((found["noun"] or found["in_noun"]) if found else "").lower()
    return noun, find_unit(noun, squared=bool(found and (found["square"] or found["in_square"])))


def _write(amount: Quantity, question: str, like: str, method: str) -> MergedAnswer:
    """A bare number where the question names the unit, else as `like` is written."""
    _, asked = _find_asked_unit(question)
    if asked is not None and amount.is_compatible_with(asked):
        return MergedAnswer((write_number(round(amount.to(asked).magnitude, 6)),), method)
    return MergedAnswer((write_quantity(amount, like),), method)
