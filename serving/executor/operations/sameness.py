"""Whether answers say the same thing: one date, one amount, one country, one name; or one list of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from serving.executor.operations.dates import Date, parse_date
from serving.executor.operations.parts import MOST_COMPARED, Merged, Part
from serving.executor.operations.quantities import parse_quantity
from serving.executor.operations.text import country, normalise
from serving.executor.operations.whole import is_value

_SAME = re.compile(r"\b(same|alike|identical|equal)\b")
_ASKED = re.compile(rf"{_SAME.pattern}|\b(share[sd]?|common)\b")
_LISTS = re.compile(r"\b(?:the same|alike|identical|equal)\s*+\??+\s*+$")
_COUNTRY = re.compile(r"\b(country|nationality|nationalities|citizens?|citizenship)\b", re.IGNORECASE)
_TIME = re.compile(r"\b(century|decade|year|month|date|day|birthday|time)\b", re.IGNORECASE)
_YEARS = {"century": 100, "decade": 10, "year": 1}


def same(question: str, parts: Sequence[Part]) -> Merged | None:
    """Whether the parts answered alike, where the question asks for that: "the same …", "share", "in common".

    "Are A and B both directors?" asks something else, to which two answers "writer" are no yes: it is answered where
    each part was asked it and said yes or no.
    """
    said = {answer.lower().strip(" .") for part in parts for answer in part.answers}
    if said <= {"yes", "no"}:
        if said == {"no"} and _SAME.search(question):
            return None  # neither has what was asked for; they may have the same other one
        return Merged(("yes" if said == {"yes"} else "no",), "all parts")
    if not _ASKED.search(question) or (len(parts) > 2 and any(len(part.answers) > 1 for part in parts)):
        return None
    first, *others = [part.answers for part in parts]
    if len(first) * max(map(len, others)) > MOST_COMPARED:
        return None
    found = [_agree(question, first, other) for other in others]
    if False not in found and None in found:
        return None
    return Merged(("no" if False in found else "yes",), "same")


def _agree(question: str, ones: Sequence[str], others: Sequence[str]) -> bool | None:
    """Whether two lists share an element, or are one list where they themselves are asked about ("Are … the same?").

    "From the same country" of films with two countries each means one that they share, in every such question of
    2WikiMultihopQA.
    """
    alike = [[_alike(question, one, other) for other in others] for one in ones]
    every = [verdict for row in alike for verdict in row]
    met = [True in row for row in (*alike, *zip(*alike, strict=True))]
    if all(met) if _LISTS.search(question) else any(met):
        return True
    return None if None in every else False


def _alike(question: str, one: str, other: str) -> bool | None:
    """Whether two answers are the same in what the question asks of them; None when that cannot be known."""
    if _COUNTRY.search(question):
        return country(one.rsplit(",", 1)[-1]) == country(other.rsplit(",", 1)[-1])
    if is_value(one) and is_value(other):
        return _alike_values(question, one, other)
    key, against = normalise(one), normalise(other)
    words, others = set(key.split()), set(against.split())
    if key != against and (words <= others or others <= words or is_value(one) or is_value(other)):
        return None  # "Ayr" and "Ayr, Scotland"; "1957" and "in her youth"
    return key == against


def _alike_values(question: str, one: str, other: str) -> bool | None:
    dates = parse_date(one), parse_date(other)
    asked = _TIME.search(question)
    if dates[0] and dates[1] and (asked or dates[0].month or dates[1].month):
        return _alike_dates(asked[1].lower() if asked else "date", dates[0], dates[1])
    amount, against = parse_quantity(one), parse_quantity(other)
    if amount is None or against is None or amount.dimension != against.dimension:
        return True if normalise(one) == normalise(other) else None
    return math.isclose(amount.value, against.value)


def _alike_dates(asked: str, one: Date, other: Date) -> bool | None:
    if size := _YEARS.get(asked):
        first = 1 if asked == "century" else 0  # the 20th begins with 1901
        periods = [{(year - first) // size for year in (date.year, date.end)} for date in (one, other)]
        if len(periods[0] | periods[1]) == 1:
            return True
        return None if one.before(other) is None or max(map(len, periods)) > 1 else False
    if one.last is not None or other.last is not None:
        return False if one.before(other) is not None else None
    if asked == "month" and one.month and one.month == other.month:
        return True if one.year == other.year else None
    if one.month == other.month and one.day == other.day:
        return None if one.day is None or one.year != other.year else True  # a birthday has no year
    return False if one.before(other) is not None else None
