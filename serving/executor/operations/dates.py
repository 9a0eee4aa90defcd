"""Dates as people write them in answers: "12 May 1957", "May 1957", "c. 44 BC", "the 1950s"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from serving.executor.operations.text import plain

_MONTHS = {name: i for i, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>\d{1,4})(?P<era>\s*(?:bce?|b\.c\.(?:e\.)?))?"
_BARE_YEAR = r"(?P<year>\d{4}|\d{1,4}(?=\s*(?:bc|b\.c|ad\b|ce\b)))(?P<era>\s*(?:bce?|b\.c\.(?:e\.)?))?"
_DATE_FORMS = tuple(
    re.compile(rf"(?<![\w.,-]){form}(?!\w|[.,]\d)", re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})(?:T[\d:.]+Z?)?",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH},?\s+{_YEAR}",
        rf"{_MONTH}\s+{_DAY},?\s+(?P<year>\d{{3,4}})(?P<era>\s*bce?)?",
        rf"{_MONTH},?\s+(?P<year>\d{{3,4}})(?P<era>\s*bce?)?",
        r"(?P<year>\d{4})-(?P<month>\d{2})",
        r"(?P<day>\d{1,2})[./](?P<month>\d{1,2})[./](?P<year>\d{4})",
        _BARE_YEAR,
        r"(?P<year>\d{3}0)(?P<decade>s)",
        r"^(?P<year>\d{3})$",
    )
)
_UNTIL = re.compile(
    r"-(?P<short>\d{2})(?![\w-])| ?(?:-|to|until|or) ?(?:[\w,. ]{,20}?\b)?(?P<year>\d{4})\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Date:
    """A day, month or year; years before the common era are zero and negative (1 BC is 0).

    `last`: the last year of a span that begins with the date: "the 1950s", "1990-1995".
    """

    year: int
    month: int | None = None
    day: int | None = None
    last: int | None = None

    @property
    def end(self) -> int:
        return self.year if self.last is None else self.last

    @property
    def day_number(self) -> float:
        """Days on a scale that is good for spans: a month or day that is not known counts as the middle."""
        return self.year * 365.2425 + (self.month or 6.5) * 30.44 + (self.day or 15.2)

    def before(self, other: Date) -> bool | None:
        """Whether this date is earlier; None when spans overlap or the parts that both state are equal."""
        if self.end < other.year or other.end < self.year:
            return self.end < other.year
        if self.last is not None or other.last is not None:
            return None
        for mine, theirs in ((self.month, other.month), (self.day, other.day)):
            if mine is None or theirs is None:
                return None
            if mine != theirs:
                return mine < theirs
        return None


def parse_date(text: str) -> Date | None:
    """The first date in `text`, in the most precise form that is there; numeric dates are day.month.year."""
    text = plain(text)
    for form in _DATE_FORMS:
        for match in form.finditer(text):
            date = _date(match.groupdict())
            if date is not None:
                until = _UNTIL.match(text, match.end())
                return _spanning(date, until) if until else date
    return None


def _spanning(date: Date, until: re.Match[str]) -> Date:
    last = int(until["year"]) if until["year"] else date.year // 100 * 100 + int(until["short"])
    return replace(date, last=last) if last > date.year else date


def is_month(word: str) -> bool:
    return re.fullmatch(_MONTH, word, re.IGNORECASE) is not None


def _date(groups: dict[str, str | None]) -> Date | None:
    year = int(groups["year"] or 0)
    month, day = groups.get("month"), groups.get("day")
    if groups.get("era"):
        year = 1 - year
    number = None if month is None else int(month) if month.isdigit() else _MONTHS[month.lower()[:3]]
    if number is not None and not 1 <= number <= 12:
        return None
    if day is not None and not 1 <= int(day) <= 31:
        return None
    if groups.get("decade"):
        return Date(year, last=year + (9 if year % 100 else 99))  # "the 1900s" may be ten years or a hundred
    return Date(year, number, int(day) if day else None)
