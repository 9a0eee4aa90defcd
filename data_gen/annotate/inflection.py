"""Forms of English nouns and verbs, by their endings; words that go otherwise are listed."""

from __future__ import annotations

import re

IRREGULAR = {
    "people": "person", "children": "child", "men": "man", "women": "woman", "wives": "wife", "movies": "movie",
    "series": "series", "species": "species",
}  # fmt: skip
PLURALS = {one: many for many, one in IRREGULAR.items()}
PLACES = frozenset("angeles arkansas athens dallas illinois kansas massachusetts texas vegas wales".split())  # noqa: SIM905


def is_plural(noun: str) -> bool:
    """By the ending; names of places that end alike are known."""
    ending = noun.endswith("s") and not noun.endswith(("ss", "us", "is", "'s"))
    return noun in IRREGULAR or (noun not in PLACES and len(noun) > 2 and ending)


def to_singular(noun: str) -> str:
    """flights → flight, cities → city, people → person."""
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if not is_plural(noun):
        return noun
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    return noun[:-2] if noun.endswith(("sses", "ches", "shes", "xes")) else noun[:-1]


def make_plural(noun: str) -> str:
    """flight → flights, city → cities, person → people, lens → lenses."""
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith("man") and len(noun) > 4:
        return f"{noun[:-3]}men"
    return _add_s(noun, ("s", "x", "z", "ch", "sh"))


def make_third_person(verb: str) -> str:
    """carry → carries, go → goes, have → has."""
    return "has" if verb == "have" else _add_s(verb, ("ss", "x", "ch", "sh", "o"))


def _add_s(word: str, hissing: tuple[str, ...]) -> str:
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return word + ("es" if word.endswith(hissing) else "s")
