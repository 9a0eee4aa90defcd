"""Choices among options that the question itself names: by number, by measure, by date, by the alphabet."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from serving.executor.operations import parse_date, parse_quantity
from serving.models.direct.numbers import NUMBER, number

MORE = frozenset(
    "larger bigger greater higher more longer largest biggest greatest highest longest most taller tallest heavier"  # noqa: SIM905
    " heaviest older oldest maximum deeper deepest wider widest warmer hotter dearer costlier".split()
)
LESS = frozenset(
    "smaller lower less shorter fewer smallest lowest least shortest fewest lighter lightest younger youngest"  # noqa: SIM905
    " minimum shallower narrower narrowest colder cooler cheaper cheapest".split()
)
EARLY = frozenset("earlier first earliest before older oldest sooner elder eldest".split())  # noqa: SIM905
LATE = frozenset("later last latest after newer newest younger youngest recently recent".split())  # noqa: SIM905

_OPTION_FORMS = (
    re.compile(
        r"(?:which|what) of (?:the )?(?:these |following )?(?:numbers |values |years |dates )?"
        r"(?P<listed>[^:]+?,? (?:or|and) [^:]+?) (?P<asked>(?:is|was|are|comes?|came)\b.*)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:what|which) (?:number |value |year |date )?(?:is|was) (?P<asked>the \w+) (?:of|among|out of)"
        r" (?:the )?(?:these )?(?:numbers |values |years |dates )?(?P<listed>[^:]+?,? (?:or|and) .+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?:which|what|who)\b(?P<asked>.*?)[,:]\s*(?P<listed>.+?,? (?:or|and) .+)", re.IGNORECASE),
    re.compile(
        r"(?:did|does|do|is|was|are) (?P<listed>.+?,? or .+?)"
        r" (?P<asked>(?:(?:come|came|happen|be|the|a|an|number|year|date|value|in|time) )*\w+)",
        re.IGNORECASE,
    ),
)


def options(text: str) -> tuple[set[str], list[str]] | None:
    """The words of what is asked and the options: `Which is W: A, B or C`, `Which of A and B is W`, `Is A or B W`."""
    for form in _OPTION_FORMS:
        if match := form.fullmatch(text):
            listed = [o.strip(" '\"“”") for o in re.split(r",? (?:or|and) |, ", match["listed"])]
            if all(listed):
                return set(re.findall(r"\w+", match["asked"].lower())), listed
    return None


def compared(text: str) -> tuple[str, str] | None:
    """The largest, smallest, earliest or latest of numbers, measures or dates."""
    split = options(text)
    return None if split is None else _larger(*split) or _earlier(*split)


def _larger(words: set[str], listed: list[str]) -> tuple[str, str] | None:
    values = [number(o) for o in listed]
    if any(v is None for v in values):
        quantities = [parse_quantity(o) for o in listed]
        if any(q is None for q in quantities) or len({q.dimensionality for q in quantities if q is not None}) != 1:
            return None
        if any(parse_date(o) or not re.match(rf"[-−$€]?\s?{NUMBER}", o, re.IGNORECASE) for o in listed):
            return None
        values = [Fraction(q.to_base_units().magnitude) for q in quantities if q is not None]
    wants = max if words & MORE else min if words & LESS else None
    if wants is None or len(set(values)) < len(values):
        return None
    return listed[values.index(wants(v for v in values if v is not None))], "comparison of numbers"


def _earlier(words: set[str], listed: list[str]) -> tuple[str, str] | None:
    dates = [parse_date(o) for o in listed]
    if any(d is None for d in dates) or bool(words & EARLY) == bool(words & LATE):
        return None
    chosen = 0
    for i in range(1, len(dates)):
        first, second = dates[chosen], dates[i]
        before = first.before(second) if first and second else None
        if before is None:
            return None
        if before == bool(words & LATE):
            chosen = i
    return listed[chosen], "comparison of dates"


def alphabetical(text: str) -> tuple[str, str] | None:
    """The option that stands first or last in the alphabet; accents do not count."""
    if not re.search(r"\balphabet(?:ical(?:ly)?)?\b", text, re.IGNORECASE):
        return None
    split = options(text)
    if split is None:
        return None
    words, listed = split
    keys = [_bare(o) for o in listed]
    if bool(words & EARLY) == bool(words & LATE) or len(set(keys)) < len(keys):
        return None
    wants = min if words & EARLY else max
    return listed[keys.index(wants(keys))], "alphabetical order"


def _bare(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if c.isalnum() or c == " ")
