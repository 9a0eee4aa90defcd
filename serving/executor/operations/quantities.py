"""Numbers with units as people write them in answers: "1,204 km", "6 ft 2 in", "3.5 million", "twenty-one"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from serving.executor.operations.dates import parse_date
from serving.executor.operations.text import plain


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
    "sterling": {"£ gbp": 1},
    "yen": {"¥ jpy yen": 1},
}
_UNITS: dict[str, tuple[str, float]] = {
    unit: (dimension, scale)
    for dimension, units in _UNIT_NAMES.items()
    for names, scale in units.items()
    for unit in names.split()
}
SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "dozen": 12.0}
_SHORT_SCALES = {"k": 1e3, "m": 1e6, "bn": 1e9}
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven "
    "twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {w: i for i, w in enumerate(_SMALL.split())} | {w: 10 * i for i, w in enumerate(_TENS.split(), 2)}
_DIGITS = re.compile(
    r"(?P<currency>[$€£¥])? ?(?P<sign>(?<![\w.])[-−])?(?P<digits>\d{1,3}(?:[,' ]\d{3})+(?!\d)|\d+)(?P<fraction>\.\d+)?"
)
_GOES_ON = re.compile(r"[.,/:'’]\d| ?(?:[-×x^]|to|or) ?\d")  # "1,5", "1/2", "5'11", "3-5", "6 × 10^24"
_UNIT_WORD = re.compile(r" ?-? ?(square |sq\.? ?)?([a-z/]+[2²]?|[%$€£¥])\.?", re.IGNORECASE)
_MINUS = re.compile(r"\b(?:minus|negative)\b", re.IGNORECASE)


def parse_quantity(text: str) -> Quantity | None:
    """The first number in `text` with its unit: digits with separators, scale words ("3.5 million"), or number words.

    Consecutive parts of one dimension add up: "6 ft 2 in", "2 hours 10 minutes". None where the digits go on as
    something else: a fraction, a decimal comma, a range, a date.
    """
    text = plain(text).replace("²", "2")
    first, date = _DIGITS.search(text), parse_date(text)
    if (first and _GOES_ON.match(text, first.end())) or (date and (date.month or date.last)):
        return None
    found = _added_up(text, first) if first else _number_words(text)
    if found is None or not math.isfinite(found.value):
        return None
    return Quantity(-found.value, found.dimension) if _MINUS.search(text) else found


def _added_up(text: str, first: re.Match[str]) -> Quantity:
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
    gap = re.compile(r",? (?:and )?").match(text, start)
    return gap.end() if gap else start


def _one_quantity(text: str, match: re.Match[str]) -> tuple[Quantity, int]:
    value = float(re.sub(r"\D", "", match["digits"]) + (match["fraction"] or ""))
    value = -value if match["sign"] else value
    end = match.end()
    dimension, scale = _UNITS[match["currency"]] if match["currency"] else ("", 1.0)
    while word := _UNIT_WORD.match(text, end):
        name = word[2].lower()
        if name in SCALES:
            value *= SCALES[name]
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
    words = re.findall(r"[a-z]+", text.lower())
    for at, word in enumerate(words):
        if word in NUMBER_WORDS:
            group += NUMBER_WORDS[word]
        elif word == "hundred" and seen:
            group *= 100
        elif word in SCALES and seen:
            total, group = total + group * SCALES[word], 0.0
        elif seen and word != "and":
            dimension, scale = unit(word) or ("", 1.0)
            again = any(other in NUMBER_WORDS for other in words[at:])  # "two hours ten minutes"
            return None if again else Quantity((total + group) * scale, dimension)
        else:
            continue
        seen = True
    return Quantity(total + group) if seen else None


def number_text(value: float) -> str:
    """A whole number with separators of thousands and no decimal point, any other as short as it can be written."""
    return f"{int(value):,}" if value == int(value) else f"{value:.10g}"
