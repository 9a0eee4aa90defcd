"""Invented names: syllable models of several flavours, patterns for titles and organisations, none given twice.

A small model has to learn to copy names that it has never seen, so there must be plenty, and odd ones among them:
articles, apostrophes, digits, hyphens, commas, ampersands, diacritics, signs as in `C++`, parentheses, operators.
"""

from __future__ import annotations

import random
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

# kinds of names that have patterns in `words.yaml`, and endings of an invented word for the others
PATTERNED = frozenset({"city", "country", "river", "university", "publisher", "festival", "prize", "battle"})
ENDINGS = {
    "studio": (" Pictures", " Studios", " Films", " Film Works", " Cinema"),
    "label": (" Records", " Music", " Sound", " Recordings", " Discs"),
    "language": ("ish", "ese", "ian", "ic"),
    "currency": (" crown", " pound", " dinar", " franc", " peso", " thaler"),
}


@cache
def load_vocabulary() -> dict[str, Any]:
    """Word lists and patterns of `words.yaml`."""
    text = files("data_gen.world").joinpath("words.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=yaml.CSafeLoader)


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

    def new(self, kind: str) -> str:
        """A name of `kind` (an entity type) that was never handed out before."""
        while True:
            self.flavour = self.rng.choice(_load_flavours())
            name = self._make(kind)
            if 2 <= len(name) <= 60 and name.lower() not in self.taken:
                self.taken.add(name.lower())
                return name

    def _make(self, kind: str) -> str:
        if kind in PATTERNED:
            pattern = self.rng.choice(self.words[kind])
            return pattern.format(*(self.word() for _ in range(pattern.count("{}"))))
        if kind in ENDINGS:
            return self.word() + self.rng.choice(ENDINGS[kind])
        makers = {"person": self._person, "company": self._company, "band": self._band}
        return makers.get(kind, self._title)()

    def near(self, name: str) -> str | None:
        """A name that differs from a person's by a little, or None if that is taken."""
        first, _, rest = name.partition(" ")
        middle = self.rng.choice(self.words["initials"])
        similar = self.rng.choice([f"{first} {middle}. {rest}", f"{name} Jr.", f"{self.word()} {rest}", f"{name}son"])
        if similar.lower() in self.taken:
            return None
        self.taken.add(similar.lower())
        return similar

    def word(self, syllables: int = 0) -> str:
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

    def _person(self) -> str:
        rng = self.rng
        given, surname = self.word(1 if rng.random() < 0.7 else 2), self.word()
        form = rng.random()
        if form < 0.06:
            given += f" {rng.choice(self.words['initials'])}."
        elif form < 0.10:
            particle = rng.choice(self.words["particles"])
            surname = f"{particle}{surname}" if particle in ("O'", "Mac") else f"{particle} {surname}"
        elif form < 0.14:
            surname += f"-{self.word()}"
        elif form < 0.18:
            given += f" {self.word()}"
        elif form < 0.19:
            surname += rng.choice((" Jr.", " II", " III"))
        elif form < 0.20:
            given = f"{rng.choice(self.words['initials'])}. {rng.choice(self.words['initials'])}."
        elif form < 0.22:
            given += f"-{self.word(1)}"
        return f"{given} {surname}"

    def _company(self) -> str:
        rng, form = self.rng, self.rng.random()
        if form < 0.03:
            return f"{self.word()[:4]}{rng.choice(('++', '#', '!', '.io', '2', '360', '*'))}"
        if form < 0.12:
            return f"{self.word()} & {self.word()}"
        if form < 0.2:
            return f"{self.word()} {self.word()}"
        return f"{self.word()} {rng.choice(self.words['company'])}{rng.choice(self.words['company_tail'])}"

    def _band(self) -> str:
        rng, form = self.rng, self.rng.random()
        adjective, noun = rng.choice(self.words["adjectives"]), rng.choice(self.words["nouns"])
        if form < 0.3:
            return f"The {adjective} {noun}{rng.choice(self.words['band_tail'])}"
        if form < 0.5:
            return f"{self.word()}{rng.choice(self.words['band_tail'][1:])}"
        if form < 0.55:
            return f"{self.word().upper()}{rng.choice(('', '!', '-7', '?', ' 13', '++'))}"
        if form < 0.65:
            return f"{self.word()} and the {noun}s"
        return f"{self.word()} {noun}" if form < 0.85 else f"{adjective} {self.word()}"

    def _title(self) -> str:
        rng = self.rng
        adjective, noun, other, verb, preposition, number = (
            rng.choice(self.words[key]) for key in ("adjectives", "nouns", "nouns", "verbs", "prepositions", "numbers")
        )
        word = self.word()
        if rng.random() < 0.03:
            return rng.choice(self._odd_titles(adjective, noun, other, word))
        patterns = (
            f"The {adjective} {noun}",
            f"The {noun} of {word}",
            f"{word}'s {noun}",
            f"{adjective} {noun}, {adjective} {other}",
            f"{number} {noun}s",
            f"{noun} and {other}",
            f"{noun} & {other}",
            f"{preposition} the {noun}",
            f"{word}",
            f"{verb} {word}",
            f"{'An' if adjective[0] in 'AEIOU' else 'A'} {adjective} {noun}",
            f"{noun} {rng.randrange(2, 100)}",
            f"The {noun} {preposition} {word}",
            f"{word}: The {adjective} {noun}",
            f"{adjective} {word}",
            f"{noun}, {other} and {word}",
            f"To {verb} the {noun}",
            f"{word} {noun}",
            f"The {noun}'s {other}",
            f"{verb} Me {preposition} the {noun}",
            f"Who Will {verb} {word}?",
            f"The {word} {noun}",
            f"{noun} in {word}",
            f"{word} {preposition} {noun}",
            f"{adjective} {noun} of {word}",
            f"The {other} of the {noun}",
            f"My {adjective} {noun}",
            f"Don't {verb} {word}",
            f"No {noun} for {word}",
        )
        return rng.choice(patterns)

    def _odd_titles(self, adjective: str, noun: str, other: str, word: str) -> tuple[str, ...]:
        rng = self.rng
        year = rng.randrange(1790, 2090)
        return (
            f"{year}",
            f"{noun} + {other} {word}",
            f"({adjective}) {word}",
            f"{word} ({noun} Mix)",
            f"{word}++",
            f"{word}#{year % 100}",
            f"{noun}/{word}",
            f"{word} * {other}",
            f'"{word}" {noun}',
            f"{adjective} {noun}!",
            f"{word}... {noun}?",
            f"{word} No. {year % 50}",
            f"{noun}-{other}-{word}",
            f"{year % 24}:{year % 60:02d} {word}",
            f"{word} × {noun}",
            f"{noun} [{word}]",
            f"¡{word}!",
        )
