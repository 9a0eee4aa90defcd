"""What all parts of the filling of a graph share: the graph, names, chance, and picks from it."""

from __future__ import annotations

import random

from data_gen.world.graph import Entity, Graph, Value
from data_gen.world.names import Names, vocabulary


class Making:
    """A graph that is being filled."""

    def __init__(self, rng: random.Random, names: Names) -> None:
        self.rng = rng
        self.names = names
        self.words = vocabulary()
        self.graph = Graph()
        self.languages: list[Value] = []
        self._known: dict[tuple[str, ...], list[Entity]] = {}
        self.occupations = self.words["occupations"] + self.words["occupations"][:8]

    def some(self, share: float) -> bool:
        return self.rng.random() < share

    def any(self, type: str) -> Entity:
        return self.rng.choice(self.graph.by_type[type])

    def living(self) -> Entity:
        """Someone who can hold an office today."""
        return next(
            (p for p in self.rng.choices(self.graph.by_type["person"], k=20) if p.birth >= 1945), self.any("person")
        )

    def people_who(self, *occupations: str) -> list[Entity]:
        """People of these occupations, or everyone if there are none."""
        if occupations not in self._known:
            people = self.graph.by_type["person"]
            self._known[occupations] = [p for p in people if p.noun in occupations] or people
        return self._known[occupations]
