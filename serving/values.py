"""Dates and numbers as people write them in answers, read into values that can be compared.

A reader's answer is text: "12 May 1957", "May 1957", "c. 44 BC", "1,204 km", "6 ft 2 in", "3.5 million", "twenty-one".
`parse_date` and `parse_quantity` return None for what they cannot read, and comparisons return None for what cannot be
told apart ("1957" and "May 1957") or does not belong together (metres and kilograms).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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
        r"(?P<year>\d{3}0)s",
        r"^(?P<year>\d{3})$",
    )
)


@dataclass(frozen=True)
class Date:
    """A day, month or year; years before the common era are zero and negative (1 BC is 0)."""

    year: int
    month: int | None = None
    day: int | None = None

    @property
    def day_number(self) -> float:
        """Days on a scale that is good for spans: a month or day that is not known counts as the middle."""
        return self.year * 365.2425 + (self.month or 6.5) * 30.44 + (self.day or 15.2)

    def before(self, other: Date) -> bool | None:
        """Whether this date is earlier; None when the parts that both state are equal."""
        for mine, theirs in ((self.year, other.year), (self.month, other.month), (self.day, other.day)):
            if mine is None or theirs is None:
                return None
            if mine != theirs:
                return mine < theirs
        return None


def parse_date(text: str) -> Date | None:
    """The first date in `text`, in the most precise form that is there; numeric dates are day.month.year."""
    text = _plain(text)
    for form in _DATE_FORMS:
        for match in form.finditer(text):
            date = _date(match.groupdict())
            if date is not None:
                return date
    return None


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
    return Date(year, number, int(day) if day else None)


@dataclass(frozen=True)
class Quantity:
    """A number in the base unit of its dimension (m, kg, s, m2, USD …); dimension "" is a plain count."""

    value: float
    dimension: str = ""


_UNIT_NAMES: dict[str, dict[str, float]] = {
    "length": {
        "mm millimetre millimeter": 0.001,
        "cm centimetre centimeter": 0.01,
        "m metre meter": 1,
        "km kilometre kilometer": 1000,
        "in inch inches": 0.0254,
        "ft foot feet": 0.3048,
        "yd yard": 0.9144,
        "mi mile": 1609.344,
    },
    "mass": {"g gram": 0.001, "kg kilogram": 1, "t tonne": 1000, "lb pound": 0.45359237, "oz ounce": 0.0283495},
    "time": {
        "s sec second": 1,
        "min minute": 60,
        "h hr hour": 3600,
        "day": 86400,
        "week": 604800,
        "month": 2629746,
        "year yr": 31556952,
    },
    "area": {
        "m2 sqm": 1,
        "km2": 1e6,
        "ha hectare": 1e4,
        "acre": 4046.8564224,
        "sqmi mi2": 2589988.110336,
        "sqft ft2": 0.09290304,
    },
    "speed": {"km/h kph kmh": 1 / 3.6, "mph": 0.44704, "m/s": 1},
    "percent": {"% percent": 1},
    "dollar": {"$ usd dollar": 1},
    "euro": {"€ eur euro": 1},
}
_UNITS: dict[str, tuple[str, float]] = {
    unit: (dimension, scale)
    for dimension, units in _UNIT_NAMES.items()
    for names, scale in units.items()
    for unit in names.split()
}
_SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "dozen": 12.0}
_SHORT_SCALES = {"k": 1e3, "m": 1e6, "bn": 1e9}
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven "
    "twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {w: i for i, w in enumerate(_SMALL.split())} | {w: 10 * i for i, w in enumerate(_TENS.split(), 2)}
_DIGITS = re.compile(
    r"(?P<currency>[$€])?\s*(?P<sign>(?<![\w.])[-−])?"
    r"(?P<digits>\d{1,3}(?:[,\u202f\u00a0' ]\d{3})+(?!\d)|\d+)(?P<fraction>\.\d+)?"
)
_UNIT_WORD = re.compile(r"\s*-?\s*(square\s+|sq\.?\s*)?([a-z/]+[2²]?|[%$€])\.?", re.IGNORECASE)


def parse_quantity(text: str) -> Quantity | None:
    """The first number in `text` with its unit: digits with separators, scale words ("3.5 million"), or number words.

    Consecutive parts of one dimension add up: "6 ft 2 in", "2 hours 10 minutes".
    """
    text = _plain(text).replace("²", "2")
    first = _DIGITS.search(text)
    if first is None:
        return _number_words(text)
    total, end = _one_quantity(text, first)
    while total.dimension in ("length", "time", "mass"):
        match = _DIGITS.match(text, _gap(text, end))
        if match is None:
            break
        part, end = _one_quantity(text, match)
        if part.dimension != total.dimension or part.value >= total.value:
            break
        total = Quantity(total.value + part.value, total.dimension)
    return total


def _gap(text: str, start: int) -> int:
    gap = re.compile(r",?\s+(?:and\s+)?").match(text, start)
    return gap.end() if gap else start


def _one_quantity(text: str, match: re.Match[str]) -> tuple[Quantity, int]:
    value = float(re.sub(r"\D", "", match["digits"]) + (match["fraction"] or ""))
    value = -value if match["sign"] else value
    end = match.end()
    dimension, scale = _UNITS[match["currency"]] if match["currency"] else ("", 1.0)
    while word := _UNIT_WORD.match(text, end):
        name = word[2].lower()
        if name in _SCALES:
            value *= _SCALES[name]
        elif dimension and match["currency"] and name in _SHORT_SCALES:
            value *= _SHORT_SCALES[name]
        elif not dimension and (known := unit(name, squared=bool(word[1]))):
            return Quantity(value * known[1], known[0]), word.end()
        else:
            break
        end = word.end()
    return Quantity(value * scale, dimension), end


def unit(name: str, *, squared: bool = False) -> tuple[str, float] | None:
    """Dimension of a unit's name or sign, singular or plural, and its size in the base unit."""
    for form in (name, name.removesuffix("s"), name.removesuffix("es")):
        if form not in _UNITS:
            continue
        dimension, scale = _UNITS[form]
        if not squared:
            return dimension, scale
        return ("area", scale * scale) if dimension == "length" else None
    return None


def _number_words(text: str) -> Quantity | None:
    total = group = 0.0
    seen = False
    for word in re.findall(r"[a-z]+", text.lower()):
        if word in _WORDS:
            group += _WORDS[word]
        elif word == "hundred" and seen:
            group *= 100
        elif word in _SCALES and seen:
            total, group = total + group * _SCALES[word], 0.0
        elif seen and word != "and":
            break
        else:
            continue
        seen = True
    return Quantity(total + group) if seen else None


def number_text(value: float) -> str:
    """A whole number with separators of thousands and no decimal point, any other as short as it can be written."""
    return f"{int(value):,}" if value == int(value) else f"{value:.10g}"


def normalise(text: str) -> str:
    """A key under which two answers are the same: case, accents, punctuation and articles left out."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = re.sub(r"[^\w\s]", " ", text).split()
    return " ".join(w for w in words if w not in ("a", "an", "the")) or " ".join(words)


@cache
def _countries() -> dict[str, str]:
    rows = files("serving").joinpath("countries.tsv").read_text(encoding="utf-8").splitlines()
    return {form: row.split("\t")[0] for row in rows for form in row.split("\t")}


def country(text: str) -> str:
    """A key under which a country, its adjective and its short forms are the same: "U.S.", "American"."""
    key = normalise(text)
    return _countries().get(key, key)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).replace("\u2013", "-")
