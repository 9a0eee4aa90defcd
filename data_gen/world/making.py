"""A graph that is being filled: chance, names and picks from it, and the values of facts."""

from __future__ import annotations

import calendar
import datetime
import random

from data_gen.world.graph import Entity, Graph, Value
from data_gen.world.names import Names, load_vocabulary


class GraphMaker:
    """A graph that is being filled."""

    def __init__(self, rng: random.Random, names: Names) -> None:
        self.rng = rng
        self.names = names
        self.words = load_vocabulary()
        self.graph = Graph()
        self.languages: list[Value] = []
        self._known: dict[tuple[str, ...], list[Entity]] = {}
        self.occupations = self.words["occupations"] + self.words["occupations"][:8]

    def happens(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, type: str) -> Entity:
        return self.rng.choice(self.graph.by_type[type])

    def pick_living(self) -> Entity:
        """Someone who can hold an office today."""
        return next(
            (p for p in self.rng.choices(self.graph.by_type["person"], k=20) if p.birth >= 1945), self.pick("person")
        )

    def list_people(self, *occupations: str) -> list[Entity]:
        """People of these occupations, or everyone if there are none."""
        if occupations not in self._known:
            people = self.graph.by_type["person"]
            self._known[occupations] = [p for p in people if p.noun in occupations] or people
        return self._known[occupations]


LAST_YEAR = 2023


def number(n: int) -> Value:
    return Value(f"{n:,}", n)


def measure(n: int, unit: str) -> Value:
    return Value(f"{n:,} {unit}", n)


def year(n: int) -> Value:
    return Value(str(min(n, LAST_YEAR)), min(n, LAST_YEAR))


def money(rng: random.Random, low: int, high: int) -> Value:
    """Dollars between `low` and `high` thousand, in figures or in millions."""
    thousands = rng.randrange(low, high)
    if thousands < 1000:
        return Value(f"${thousands},000", thousands * 1000)
    tenths = thousands // 100
    return Value(f"${tenths / 10:,.1f} million", tenths * 100_000)


def date(rng: random.Random, in_year: int) -> Value:
    day = datetime.date(in_year, month := rng.randrange(1, 13), rng.randint(1, calendar.monthrange(in_year, month)[1]))
    name = load_vocabulary()["months"][day.month - 1]
    text = f"{day.day} {name} {day.year}" if rng.random() < 0.6 else f"{name} {day.day}, {day.year}"
    return Value(text, day.toordinal())
