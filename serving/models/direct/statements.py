"""Questions that state the values to compare or to reckon with: who is older, which is higher, in which year."""

from __future__ import annotations

import re

from serving.executor.operations import parse_quantity
from serving.models.direct.comparison import EARLY, LATE, LESS, MORE
from serving.models.direct.numbers import NUMBER, number

_VERBS = (
    "is|was|are|were|has|had|have|came|comes|weighs|weighed|measures|measured|stands|costs|cost|rises|lies|opened|began"
    "|started|ended|died|lived|appeared|happened|covers|scored|sold|earns|runs|ran|reaches|holds|counts|took|takes"
)
_CLAUSE = re.compile(
    rf"(?P<name>.+?)(?:,)? (?:(?P<verb>{_VERBS})\b ?(?P<rest>.*)|(?P<elided>(?:in |only )?\d.*))", re.I
)
_MEASURED = {
    "length": "taller tallest higher highest deeper deepest wider widest narrower longer longest shorter shortest",
    "mass": "heavier heaviest lighter lightest",
    "time": "older oldest younger youngest longer longest shorter shortest",
}
_YEAR = r"(?<![\d.,])[12]\d{3}(?![\d.,]\d|\d)"
_QUESTION = re.compile(
    r"(?P<told>.+?)[.,;:?] ?(?:(?:and|then|so) )?(?P<asked>(?:which|who|what|in|when)\b[^.;]*)", re.I
)
_LEAD = re.compile(
    r"^(?:given that|given|suppose that|suppose|assume|assuming|knowing that|since|as|if|while)\s+", re.I
)
_DATED = re.compile(rf"\b(?:in (?:the year )?)?{_YEAR}$")


def described(text: str) -> tuple[str, str] | None:
    """The one of two or more named things whose stated value is the larger, smaller, earlier or later."""
    match = _QUESTION.fullmatch(text)
    if not match or not re.match(r"(?:which|who|what)\b", match["asked"], re.IGNORECASE):
        return None
    clauses = [c for c in re.split(r"[,;.]? (?:and|but|while|whereas) |[,;.] ", _LEAD.sub("", match["told"])) if c]
    read = [_CLAUSE.fullmatch(c) for c in clauses]
    if len(read) < 2 or not read[0] or not read[0]["verb"]:
        return None
    names, tails = [], []
    for clause in read:
        if clause is None:
            return None
        names.append(clause["name"].strip())
        tails.append(clause["rest"] if clause["verb"] else clause["elided"])
    words = set(re.findall(r"\w+", match["asked"].lower()))
    dated = all(_DATED.search(t) for t in tails) and (" in " in f" {tails[0]}")
    values = [_year(t) for t in tails] if dated else _measures(tails, words)
    if values is None or len(set(values)) < len(values):
        return None
    small, large = (EARLY, LATE) if dated else (LESS, MORE)
    if bool(words & small) == bool(words & large):
        return None
    wants = min if words & small else max
    return names[values.index(wants(values))], "comparison of dates" if dated else "comparison of numbers"


def _year(text: str) -> float:
    return float(re.findall(_YEAR, text)[-1])


def _measures(tails: list[str], asked: set[str]) -> list[float] | None:
    """Values in one dimension; None when a clause has not one number or they measure something else than is asked."""
    if any(len(re.findall(NUMBER, t, re.IGNORECASE)) != 1 for t in tails):
        return None
    read = [parse_quantity(t) for t in tails]
    found = [q for q in read if q is not None]
    if len(found) < len(tails):
        return None
    if len({noun.removesuffix("s") for t in tails for noun in re.findall(rf"{NUMBER} ([a-z]+)", t)}) > 1 and any(
        q.unitless for q in found
    ):
        return None
    dimensions = {str(q.dimensionality).strip("[]").replace("dimensionless", "") for q in found}
    fitting = {d for d, words in _MEASURED.items() if asked & set(words.split())} | {""}
    if len(dimensions) > 1 or (len(fitting) > 1 and not dimensions <= fitting):
        return None
    return [q.to_base_units().magnitude for q in found]


def years(text: str) -> tuple[str, str] | None:
    """A year from a year and a span, or the span between two years."""
    found = _span(text)
    if found is None:
        found = _shifted(text)
    return None if found is None else (str(found), "arithmetic of years")


def _span(text: str) -> int | None:
    between = re.fullmatch(
        rf"how many years (?:lie|are|were|passed|elapsed|went by|have passed)(?: there)?"
        rf" (?:between|from) ({_YEAR}) (?:and|to|until) ({_YEAR})",
        text,
        re.IGNORECASE,
    )
    if between:
        return abs(int(between[2]) - int(between[1]))
    if re.search(r"\bhow (?:many years|long|old)\b", text, re.IGNORECASE):
        life = re.fullmatch(
            rf"(?P<name>.+?) (?:was )?(?:born|founded|opened|built|began|started) in ({_YEAR}) and"
            rf" (?:died|closed|was closed|ended|was dissolved|was demolished) in ({_YEAR})[.,] (?P<asked>how .+)",
            text,
            re.IGNORECASE,
        )
        pronoun = life and re.search(r"\b(s?he|it|they)\b", life["asked"])
        if life and (pronoun or life["name"].split()[-1] in life["asked"]):
            return int(life[3]) - int(life[2])
    return None


def _shifted(text: str) -> int | None:
    """`… in 1900 and … 20 years later. In which year …`, `What year is 20 years after 1900`."""
    plain = re.fullmatch(
        rf"(?:what|which) year (?:is|was|comes|came|lies) ({NUMBER}) years? (after|before) ({_YEAR})",
        text,
        re.IGNORECASE,
    )
    if plain:
        span = number(plain[1])
        return None if span is None else int(plain[3]) + int(span) * (1 if plain[2].lower() == "after" else -1)
    match = _QUESTION.fullmatch(text)
    if not match or not re.match(r"(?:in )?(?:which|what) year\b|when\b", match["asked"], re.IGNORECASE):
        return None
    spans = re.findall(rf"({NUMBER}) years? (later|after|earlier|before)\b", match["told"], re.IGNORECASE)
    fixed = re.findall(_YEAR, match["told"])
    clauses = re.split(r" and |[,;.] ", match["told"])
    if len(spans) != 1 or len(fixed) != 1 or len(clauses) != 2:
        return None
    spanned = next(c for c in clauses if re.search(r"years? (?:later|after|earlier|before)\b", c, re.IGNORECASE))
    span = number(spans[0][0])
    if span is None or fixed[0] in spanned or not _verbs(spanned) & _verbs(match["asked"]):
        return None
    return int(fixed[0]) + int(span) * (1 if spans[0][1].lower() in ("later", "after") else -1)


def _verbs(text: str) -> set[str]:
    """The first three letters of the lower-case words that could be a verb: `died` and `die` are one."""
    words = re.findall(r"(?<!\w)[a-z]{3,}", re.sub(r"^(?:In|When|What|Which)\b", "", text))
    stop = (
        "year",
        "years",
        "which",
        "what",
        "when",
        "later",
        "earlier",
        "after",
        "before",
        "did",
        "was",
        "the",
        "were",
    )
    return {w[:3] for w in words if w not in stop}
