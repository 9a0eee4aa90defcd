"""Conversion between units whose ratio is exact."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from importlib.resources import files

import yaml

from serving.models.direct.numbers import number, shown

_UNIT = r"[a-z]+(?: angles?| turns?)?"
_FORMS = (
    re.compile(
        rf"how many (?P<to>{_UNIT}) (?:are|is|does|do|make|makes|make up)?(?: there)?\s*(?:in |up )?"
        rf"(?P<amount>.+?) (?P<from>{_UNIT})(?: have| has| contain| contains| last| make| equal| hold| take)?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:convert|express|change|turn|write|give|what is|what are|how much is|how much are) (?P<amount>.+?)"
        rf" (?P<from>{_UNIT}) (?:to|in|into|as) (?P<to>{_UNIT})",
        re.IGNORECASE,
    ),
)


def converted(text: str) -> tuple[str, str] | None:
    """An amount in another unit of the same kind; None where the ratio is not exact (days of a month)."""
    for form in _FORMS:
        match = form.fullmatch(text)
        if match is None:
            continue
        amount = Fraction(1) if match["amount"].lower() in ("a", "an", "one") else number(match["amount"])
        source, target = _unit(match["from"].lower()), _unit(match["to"].lower())
        if amount is not None and source and target and source[0] == target[0]:
            return shown(amount * source[1] / target[1]), "conversion of units"
    return None


def _unit(name: str) -> tuple[str, Fraction] | None:
    sizes = _sizes()
    return sizes.get(name) or sizes.get(name.removesuffix("s"))


@cache
def _sizes() -> dict[str, tuple[str, Fraction]]:
    kinds = yaml.safe_load(files("serving.models.direct").joinpath("units.yaml").read_text(encoding="utf-8"))
    sizes: dict[str, tuple[str, Fraction]] = {}
    for kind, units in kinds.items():
        for names, size in units.items():
            whole = names in ("right angle", "full turn")
            sizes |= {name: (kind, Fraction(str(size))) for name in ([names] if whole else names.split())}
    return sizes
