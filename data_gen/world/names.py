"""Invented names: syllable models of several flavours, patterns for titles and organisations, none given twice.

A small model has to learn to copy names that it has never seen, so there must be plenty, and odd ones among them:
articles, apostrophes, digits, hyphens, commas, ampersands, diacritics, signs as in `C++`, parentheses, operators.
"""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any

from revelator.config import read_table

SLOT = re.compile(r"\{(\w+)\}")
TITLE_WORDS = {"adjective": "adjectives", "noun": "nouns", "other": "nouns", "verb": "verbs"}
TITLE_WORDS |= {"preposition": "prepositions", "number": "numbers"}


def load_table(name: str) -> dict[str, Any]:
    """A table of this package: `relations`, `facts` or `words`."""
    return read_table("data_gen.world", f"{name}.yaml")


def load_vocabulary() -> dict[str, Any]:
    """Word lists and forms of names."""
    return load_table("words")


@cache
def _load_flavours() -> tuple[dict[str, list[str]], ...]:
    return tuple({key: parts.split() or [""] for key, parts in f.items()} for f in load_vocabulary()["flavours"])


class Names:
    """Makes names; `taken` holds every surface handed out, lower-cased, and is shared by all parts of a world."""

    def __init__(self, rng: random.Random, taken: set[str]) -> None:
        self.rng = rng
        self.taken = taken
        self.words = load_vocabulary()
        self.flavour = rng.choice(_load_flavours())

    def make_name(self, kind: str) -> str:
        """A name of `kind` (an entity type) that was never handed out before."""
        while True:
            self.flavour = self.rng.choice(_load_flavours())
            name = self._make(kind)
            if 2 <= len(name) <= 60 and name.lower() not in self.taken:
                self.taken.add(name.lower())
                return name

    def _make(self, kind: str) -> str:
        rng = self.rng
        if kind == "person":
            given, surname = self.make_word(1 if rng.random() < 0.7 else 2), self.make_word()
            return self._fill(self._choose_form(kind), given=given, surname=surname)
        if kind == "band":
            form = self._choose_form(kind)
            adjective = rng.choice(self.words["adjectives"])
            return self._fill(form, adjective=adjective, noun=rng.choice(self.words["nouns"]))
        return self._fill(self._choose_form(kind)) if kind in self.words["forms"] else self._make_title()

    def _make_title(self) -> str:
        rng, forms = self.rng, self.words["forms"]
        given = {slot: rng.choice(self.words[words]) for slot, words in TITLE_WORDS.items()}
        given["name"] = self.make_word()
        if rng.random() >= 0.03:
            given |= {"article": "An" if given["adjective"][0] in "AEIOU" else "A", "count": rng.randrange(2, 100)}
            return self._fill(rng.choice(forms["title"]), **given)
        year = rng.randrange(1790, 2090)
        given |= {"year": year, "short_year": year % 100, "half_year": year % 50}
        given["clock"] = f"{year % 24}:{year % 60:02d}"
        return self._fill(rng.choice(forms["odd title"]), **given)

    def _choose_form(self, kind: str) -> str:
        forms = self.words["forms"][kind]
        if isinstance(forms, str):
            return forms
        if isinstance(forms[0], str):
            return self.rng.choice(forms)
        roll = self.rng.random()
        return next(form for limit, form in forms if roll < limit)

    def _fill(self, form: str, **given: object) -> str:
        """The form with its slots filled from left to right."""
        words = {
            "word": self.make_word,
            "syllable": lambda: self.make_word(1),
            "start": lambda: self.make_word()[:4],
            "loud": lambda: self.make_word().upper(),
        }

        def fill(slot: re.Match[str]) -> str:
            name = slot[1]
            if name in given:
                return str(given[name])
            return words[name]() if name in words else self.rng.choice(self.words[name])

        return SLOT.sub(fill, form)

    def find_similar(self, name: str) -> str | None:
        """A name that differs from a person's by a little, which then counts as taken; None if it was before."""
        first, _, rest = name.partition(" ")
        middle = self.rng.choice(self.words["initials"])
        forms = [f"{first} {middle}. {rest}", f"{name} Jr.", f"{self.make_word()} {rest}", f"{name}son"]
        similar = self.rng.choice(forms)
        if similar.lower() in self.taken:
            return None
        self.taken.add(similar.lower())
        return similar

    def make_word(self, syllables: int = 0) -> str:
        """One capitalised invented word of 1-3 syllables and an ending."""
        rng, flavour = self.rng, self.flavour
        parts = []
        for _ in range(syllables or rng.choice((1, 1, 1, 2, 2))):
            parts.append(rng.choice(flavour["onsets"]) + rng.choice(flavour["vowels"]))
            if flavour["codas"][0] and rng.random() < 0.5:
                parts.append(rng.choice(flavour["codas"]))
        if rng.random() < 0.75:
            ending = rng.choice(flavour["ends"])
            if parts[-1][-1] in "aeiouyáéíóäöåø" and ending[0] in "aeiouyáéíóäöåø":
                parts.append(rng.choice(flavour["onsets"]))
            parts.append(ending)
        word = "".join(parts)
        return word[:1].upper() + word[1:]
