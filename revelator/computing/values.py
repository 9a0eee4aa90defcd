"""What an answer says: a date, a quantity with its unit, or a name.

A text is read as a whole or not at all: "1,204 km" is a quantity, "Apollo 13" a name with a number in it, "1950-60" and
"1/2" are neither, and nothing is computed with them. Dates are read by `strptime`, whose formats say which parts are
given. (python-dateutil and dateparser fill in what is not: dateutil takes "90" for 1990 and "1,957" for the year 957.)
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date as day
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files

from bm25s.stopwords import STOPWORDS_EN
from pint import Quantity, Unit, UnitRegistry
from text_to_num import alpha2digit

LONGEST = 200  # characters of a value with everything around it; a longer text is prose, or was made to cost time
_FOLDER = files("revelator.computing")
UNITS: UnitRegistry = UnitRegistry(None)
UNITS.load_definitions(_FOLDER.joinpath("units.txt").read_text(encoding="utf-8").splitlines())
_SIGNS = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "%": "percent", "°C": "celsius", "°F": "fahrenheit"}
_AROUND = re.compile(r"^(?:(?:c\.?|ca\.?|circa|about|around|approximately|roughly|on|in|the|year|~|≈) ?\b)+")
_ERA = re.compile(r" ?(?:(?P<before>BCE?|B\.C\.(?:E\.)?)|AD|CE)$", re.IGNORECASE)
_BESIDE_DATE = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|,|(?<=[a-z])\.|T[\d:.]+Z?$|\.$")
_DATE_FORMATS = {  # by what each one gives
    "day": ("%Y-%m-%d", "%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y", "%d/%m/%Y", "%d.%m.%Y"),
    "month": ("%B %Y", "%b %Y", "%Y-%m"),
    "year": ("%Y",),
}
_CLOCKS = ("%H:%M", "%I:%M%p", "%I.%M%p", "%I%p")  # 7.40 alone is a number
_MEASURED = re.compile(r" (?:old|high|tall|long|wide|deep|thick)$")
_AMOUNT = re.compile(
    r"(?P<minus>[-−]|minus )?(?P<currency>[$€£¥])? ?"
    r"(?P<number>\d{1,3}(?:[ ,']\d{3})+|\d+)(?P<fraction>\.\d+)?(?P<words>(?!\d|s\b).*)"  # "1950s" is no time
)
_NEXT_AMOUNT = re.compile(r"(?<=[a-z])(?<!minus)\.?,? (?:and )?(?=\d)")  # "6 ft 2 in", "2 hours and 10 minutes"
_CLAUSE_END = re.compile(r"[;\n]|[.!?,](?=\s)")
_MARKS = " ,.:;!?()[]\"'“”‘’"  # around a value in a text
_DIGIT = re.compile(r"\d")
MOST_WORDS = 5  # of a quantity in a text: "2 hours and 10 minutes"
_ROUND_NUMBERS = re.compile(r"\b(?:hundred|thousand|[mb]illion)s\b", re.IGNORECASE)  # which text2num reads as 100, …


@dataclass(frozen=True)
class Date:
    """A day, month or year; years before the common era are zero and negative (1 BC is 0)."""

    year: int
    month: int | None = None
    day: int | None = None

    @property
    def days(self) -> tuple[int, int]:
        """The first and the last day that it may mean, counted from the year 1."""
        first = _count_days(self.year, self.month or 1, self.day or 1)
        if self.day:
            return first, first
        year, month = (self.year, self.month + 1) if self.month and self.month < 12 else (self.year + 1, 1)
        return first, _count_days(year, month, 1) - 1


def _count_days(year: int, month: int, number: int) -> int:
    """Days from the year 1. The calendar repeats itself after 400 years, which are 146,097 days."""
    cycles, rest = divmod(year, 400)
    return day(rest + 400, month, number).toordinal() + 146_097 * (cycles - 1)


@lru_cache(maxsize=4096)  # an answer is read once to see what it is, and once to compute with it
def parse_date(text: str) -> Date | None:
    """Reads "12 May 1957", "May 12, 1957", "1957-05-12", "May 1957", "c. 44 BC"; numeric dates are day.month.year."""
    text = _AROUND.sub("", normalise_spaces(text))
    era = _ERA.search(text)
    text = " ".join(_BESIDE_DATE.sub(" ", _ERA.sub("", text)).replace("Sept ", "Sep ").split())
    year = re.search(r"(?<![\d.,])\d{1,4}$", text)
    if year and (era or len(year[0]) > 2):
        text = text[: year.start()] + year[0].zfill(4)
    for given, formats in _DATE_FORMATS.items():
        for form in formats:
            try:
                read = datetime.strptime(text, form)
            except ValueError:
                continue
            number = 1 - read.year if era and era["before"] else read.year
            return Date(number, read.month if given != "year" else None, read.day if given == "day" else None)
    return None


@lru_cache(maxsize=4096)
def parse_clock(text: str) -> int | None:
    """Reads "07:40", "7.40 pm", "6 am" as minutes after midnight."""
    text = re.sub(r"\s|(?<=[ap])\.(?=m)|(?<=m)\.$", "", normalise_spaces(text).casefold().removeprefix("at "))
    for form in _CLOCKS:
        try:
            read = datetime.strptime(text, form)
        except ValueError:
            continue
        return 60 * read.hour + read.minute
    return None


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity | None:
    """Reads "1,204 km", "$3.5 million", "6 ft 2 in", "twenty-one", "1,204 pages" (a plain number), in the unit written.

    None where digits go on as something else: a fraction, a decimal comma, a range, a date.
    """
    text = _as_digits(text)
    total: Quantity | None = None
    last = math.inf
    for piece in _NEXT_AMOUNT.split(text):
        amount = _read_amount(piece)
        if amount is None or not math.isfinite(amount.magnitude):
            return None
        base = amount.to_base_units().magnitude
        if total is not None and (amount.unitless or not amount.is_compatible_with(total) or base >= last):
            return None
        total, last = amount if total is None else total + amount, base
    return total


def _as_digits(text: str) -> str:
    text = _MEASURED.sub("", _AROUND.sub("", normalise_spaces(text)))
    if not re.search(r"\d", text) and not _ROUND_NUMBERS.search(text):
        text = alpha2digit(text, "en", 0)
    return text


def _read_amount(text: str) -> Quantity | None:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number = float(re.sub(r"\D", "", found["number"]) + (found["fraction"] or ""))
    unit = find_unit(found["currency"]) if found["currency"] else None
    words = found["words"].replace("-", " ").split()
    while words and (scale := find_unit(words[0])) and scale.dimensionless:
        number *= UNITS.Quantity(1, scale).to_base_units().magnitude
        words.pop(0)
    if words and unit is None:
        taken = 2 if words[0].lower() in ("square", "sq", "sq.") else 1
        unit = find_unit(words[taken - 1], squared=taken == 2) if len(words) >= taken else None
        words = words[taken:] if unit else words
    if words and (unit is not None or not _is_counted(words)):
        return None
    return UNITS.Quantity(-number if found["minus"] else number, unit or "")


def _is_counted(words: list[str]) -> bool:
    """Whether words say what is counted: one or two in small letters ("pages", "studio albums")."""
    return len(words) < 3 and all(re.fullmatch(r"[a-z]{3,}", w) and w not in STOPWORDS_EN for w in words)


def find_unit(name: str, *, squared: bool = False) -> Unit | None:
    """The unit of a name or symbol: "km", "miles", "km2", "km/h", "$"."""
    name, _, per = name.removesuffix(".").partition("/")
    if name.endswith(("2", "²")):
        name, squared = name[:-1], True
    word, divisor = _SIGNS.get(name, name), find_unit(per) if per else None
    if not word.isalpha() or not UNITS.parse_unit_name(word) or (per and divisor is None):
        return None
    unit: Unit = UNITS.Unit(word)
    unit = UNITS.Unit(unit**2) if squared else unit
    return unit / divisor if divisor is not None else unit


def is_value(text: str) -> bool:
    """Whether an answer is nothing but a date or a quantity."""
    return parse_date(text) is not None or parse_quantity(text) is not None


def says_value(text: str, answer: str) -> bool:
    """Whether a text says the date or the quantity of an answer in any form: "8 June 2021" for "June 8, 2021", "Euros a
    year: 4500" for "4,500 euros". What an answer says beside its quantity must stand in the same clause."""
    if (date := parse_date(answer)) and _says_date(text, date):
        return True
    whole = parse_quantity(answer)
    words, wanted = ((), [(whole, 0, 0)]) if whole is not None else _find_quantities(normalise_spaces(answer))
    if len(wanted) != 1:
        return False
    [(amount, first, end)] = wanted
    beside = [*words[:first], *words[end:]]
    return any(_says_quantity(clause, amount, beside) for clause in _CLAUSE_END.split(text))


def _says_date(text: str, wanted: Date) -> bool:
    """Whether a text says a date, or one within it: a day of a month that is wanted."""
    year = str(wanted.year if wanted.year > 0 else 1 - wanted.year)
    words = text.split()
    for place in (place for place, word in enumerate(words) if year in word):
        for start in range(max(0, place - 3), place + 1):
            for end in (place + 1, place + 2):  # an era stands behind the year
                found = parse_date(" ".join(words[start:end]).strip(_MARKS))
                if found and wanted.days[0] <= found.days[0] and found.days[1] <= wanted.days[1]:
                    return True
    return False


@lru_cache(maxsize=512)  # a text is asked about each answer
def _find_quantities(clause: str) -> tuple[tuple[str, ...], list[tuple[Quantity, int, int]]]:
    """The words of a clause, and its quantities, each with its first word's place and the place behind its last."""
    words = tuple((clause if _DIGIT.search(clause) else alpha2digit(clause, "en", 0)).split())
    found, place = [], 0
    while place < len(words):
        for end in range(min(place + MOST_WORDS, len(words)), place, -1) if _DIGIT.search(words[place]) else ():
            amount = parse_quantity(" ".join(words[place:end]).strip(_MARKS))
            if amount is not None:
                found.append((amount, place, end))
                place = end - 1
                break
        place += 1
    return words, found


def _says_quantity(clause: str, wanted: Quantity, beside: Sequence[str]) -> bool:
    words, quantities = _find_quantities(clause)
    for found, first, end in quantities:
        around = [*words[:first], *words[end:]]
        if _are_equal(wanted, found, around) and {normalise(word) for word in beside} <= {"", *map(normalise, around)}:
            return True
    return False


def _are_equal(wanted: Quantity, found: Quantity, around: Sequence[str]) -> bool:
    """Whether two quantities are one. A unit may stand apart from its number, in the name of a column, or be left out
    of what is wanted."""
    if not wanted.unitless and not found.unitless:
        return wanted.is_compatible_with(found) and math.isclose(wanted.magnitude, found.to(wanted.units).magnitude)
    if not math.isclose(wanted.magnitude, found.magnitude):
        return False
    names = (name for word in around for name in (word.strip(_MARKS), word.strip(_MARKS).lower()) if name)
    return wanted.unitless or any(find_unit(name) == wanted.units for name in names)


def write_number(value: float) -> str:
    """A whole number with separators of thousands and no decimal point, any other as short as it can be written."""
    return f"{int(value):,}" if value == int(value) else f"{value:.10g}"


def write_quantity(quantity: Quantity, like: str) -> str:
    """A quantity as the text `like` writes its own: "250 km" like "6,650 km", "$2,000,000" like "$5 million"."""
    amount = _AMOUNT.fullmatch(_NEXT_AMOUNT.split(_as_digits(like))[0])
    first = _read_amount(amount[0]) if amount else None
    assert amount is not None and first is not None
    number = write_number(round(quantity.to(first.units).magnitude, 6))
    if first.unitless:
        return number
    words = [word for word in amount["words"].split() if not ((unit := find_unit(word)) and unit.dimensionless)]
    space = " " if words and amount["words"].startswith(" ") else ""
    return f"{amount['currency'] or ''}{number}{space}{' '.join(words)}"


def normalise(text: str) -> str:
    """A key under which two answers are the same: case, accents, punctuation and articles left out."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = re.sub(r"[^\w\s]", " ", text).split()
    return " ".join(w for w in words if w not in ("a", "an", "the")) or " ".join(words)


@cache
def _read_countries() -> dict[str, str]:
    rows = _FOLDER.joinpath("countries.tsv").read_text(encoding="utf-8").splitlines()
    return {form: row.split("\t")[0] for row in rows for form in row.split("\t")}


def normalise_country(text: str) -> str:
    """A key under which a country, its adjective and its short forms are the same: "U.S.", "American"."""
    key = normalise(text)
    return _read_countries().get(key, key)


def normalise_spaces(text: str) -> str:
    """What the readers of values see: one space where there is white space; nothing of a text that is no value."""
    text = " ".join(unicodedata.normalize("NFC", text).replace("\u2013", "-").split())
    return text if len(text) <= LONGEST else ""
