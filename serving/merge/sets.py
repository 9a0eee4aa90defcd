"""Answers as sets: what two lists share, what one has and the other has not, and whether answers are the same.

That lists share nothing is never said: they may only write the same names differently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from revelator.computing.values import Date, is_value, normalise, normalise_country, parse_date, parse_quantity
from serving.merge.parts import MergedAnswer, Part

MOST_COMPARED = 500  # pairs of answers
_AMONG = re.compile(
    r"\{(\w+)\}\s++(?:(?:is|are|was|were)\s++)?+(also|not)?+\s*+"
    r"(?:in|among|amongst|one of|part of)\s++(?:the\s++)?+\{(\w+)\}",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"\bboth\s+(?:in\s+|among\s+)?\{(\w+)\} and \{(\w+)\}|\bcommon to (?:both )?\{(\w+)\} and \{(\w+)\}"
    r"|\{(\w+)\} and \{(\w+)\} (?:both )?(?:have in common|share)\b",
    re.IGNORECASE,
)
_SAME = re.compile(r"\b(same|alike|identical|equal)\b")
_SAME_OR_SHARED = re.compile(rf"{_SAME.pattern}|\b(share[sd]?|common)\b")
_ENDS_WITH_SAME = re.compile(r"\b(?:the same|alike|identical|equal)\s*+\??+\s*+$")
_COUNTRY = re.compile(r"\b(country|nationality|nationalities|citizens?|citizenship)\b", re.IGNORECASE)
_TIME = re.compile(r"\b(century|decade|year|month|date|day|birthday|time)\b", re.IGNORECASE)
_YEARS = {"century": 100, "decade": 10, "year": 1}


def find_common(parts: Sequence[Part]) -> MergedAnswer | None:
    """The answers that all parts share, as the first part writes them; None where they share none."""
    common = set.intersection(*({normalise(answer) for answer in part.answers} for part in parts))
    shared = tuple(answer for answer in parts[0].answers if normalise(answer) in common)
    return MergedAnswer(shared, "in common") if shared else None


def selects(text: str) -> bool:
    """Whether a wording selects from two lists of values."""
    return _AMONG.search(text) is not None or _BOTH.search(text) is not None


def select(text: str, values: Mapping[str, Part]) -> list[str] | None:
    """What a wording selects from two lists, in the first one's order: "{a} are (not) among {b}", "both {a} and {b}".

    None when it selects nothing so; of two single values, neither of which is a list, None too.
    """
    one, both = _AMONG.search(text), _BOTH.search(text)
    names = (one[1], one[3]) if one else tuple(filter(None, both.groups())) if both else ()
    if len(names) != 2 or not set(names) <= set(values):
        return None
    first, second = (values[name].answers for name in names)
    if len(first) == len(second) == 1:
        return None
    keys = {normalise(answer) for answer in second}
    left_out = one is not None and (one[2] or "").lower() == "not"
    return [answer for answer in first if (normalise(answer) in keys) != left_out]


def judge_same(question: str, parts: Sequence[Part]) -> MergedAnswer | None:
    """Whether the parts answered alike, where the question asks for that: "the same …", "share", "in common".

    "Are A and B both directors?" asks something else, to which two answers "writer" are no yes: it is answered where
    each part was asked it and said yes or no.
    """
    said = {answer.lower().strip(" .") for part in parts for answer in part.answers}
    if said <= {"yes", "no"}:
        if said == {"no"} and _SAME.search(question):
            return None  # neither has what was asked for; they may have the same other one
        return MergedAnswer(("yes" if said == {"yes"} else "no",), "all parts", is_verdict=True)
    if not _SAME_OR_SHARED.search(question) or (len(parts) > 2 and any(len(part.answers) > 1 for part in parts)):
        return None
    first, *others = [part.answers for part in parts]
    if len(first) * max(map(len, others)) > MOST_COMPARED:
        return None
    found = [_have_same_answers(question, first, other) for other in others]
    if False not in found and None in found:
        return None
    return MergedAnswer(("no" if False in found else "yes",), "same", is_verdict=True)


def _have_same_answers(question: str, ones: Sequence[str], others: Sequence[str]) -> bool | None:
    """Whether two lists share an element, or are one list where they themselves are asked about ("Are … the same?").

    "From the same country" of films with two countries each means one that they share, in every such question of
    2WikiMultihopQA.
    """
    alike = [[_are_alike(question, one, other) for other in others] for one in ones]
    met = [True in row for row in (*alike, *zip(*alike, strict=True))]
    if all(met) if _ENDS_WITH_SAME.search(question) else any(met):
        return True
    return None if any(None in row for row in alike) else False


def _are_alike(question: str, one: str, other: str) -> bool | None:
    """Whether two answers are the same in what the question asks of them; None when that cannot be known."""
    if _COUNTRY.search(question):
        return normalise_country(one.rsplit(",", 1)[-1]) == normalise_country(other.rsplit(",", 1)[-1])
    key, against = normalise(one), normalise(other)
    if is_value(one) and is_value(other):
        first, second = parse_date(one), parse_date(other)
        asked = _TIME.search(question)
        if first and second and (asked or first.month or second.month):
            return _are_alike_dates(asked[1].lower() if asked else "date", first, second)
        amount, amount_too = parse_quantity(one), parse_quantity(other)
        if amount is None or amount_too is None or not amount.is_compatible_with(amount_too):
            return True if key == against else None
        return math.isclose(amount.magnitude, amount_too.to(amount.units).magnitude)
    words, others = set(key.split()), set(against.split())
    if key != against and (words <= others or others <= words or any(map(_has_number, (one, other)))):
        return None  # "Ayr" and "Ayr, Scotland"; "1957" and "the 1950s"
    return key == against


def _has_number(text: str) -> bool:
    return is_value(text) or re.search(r"\d", text) is not None


def _are_alike_dates(asked: str, one: Date, other: Date) -> bool | None:
    if size := _YEARS.get(asked):
        first = 1 if asked == "century" else 0  # the 20th begins with 1901
        return (one.year - first) // size == (other.year - first) // size
    if asked == "month" and one.month and one.month == other.month:
        return True if one.year == other.year else None
    if one.month == other.month and one.day == other.day:
        return True if one.day and one.year == other.year else None  # a birthday has no year
    return False if one.is_before(other) is not None else None
