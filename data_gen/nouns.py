"""One and many: the nouns of questions in the singular and in the plural."""

from __future__ import annotations

import re

IRREGULAR = {
    "people": "person", "children": "child", "men": "man", "women": "woman", "wives": "wife", "movies": "movie",
}  # fmt: skip
PLURALS = {one: many for many, one in IRREGULAR.items()}
ALIKE = ("series", "species", "yards", "news", "headquarters")  # yards are counted by their number
PLACES = frozenset(re.findall(r"\w+", "angeles arkansas athens dallas illinois kansas massachusetts texas vegas wales"))


def singular(noun: str) -> str:
    """flights → flight, cities → city, people → person."""
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if not is_plural(noun) or noun in ALIKE:
        return noun
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    return noun[:-2] if noun.endswith(("sses", "ches", "shes", "xes")) else noun[:-1]


def plural(noun: str) -> str:
    """flight → flights, city → cities, person → people, river_2 → rivers_2."""
    if numbered := re.fullmatch(r"(.+)(_\d+)", noun):
        return plural(numbered[1]) + numbered[2]
    if noun in PLURALS:
        return PLURALS[noun]
    if is_plural(noun):
        return noun
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "ch", "sh", "x")) else "s")


def is_plural(noun: str) -> bool:
    """By the ending; names of places that end alike are known."""
    ending = noun.endswith("s") and not noun.endswith(("ss", "us", "is", "'s"))
    return noun in IRREGULAR or (noun not in PLACES and len(noun) > 2 and ending)
