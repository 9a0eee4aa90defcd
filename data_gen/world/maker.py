"""A graph that is being filled: draws of entities and values, and what is stated of each kind of entity."""

from __future__ import annotations

import calendar
import datetime
import random
from collections.abc import Callable

from data_gen.world.graph import Entity, Value, WorldGraph
from data_gen.world.names import Names, load_table

EQUAL_NAMES = 0.05  # share of entities that take the name of another
WORKS = frozenset({"film", "novel", "album", "song"})
PLAIN = frozenset({"river", "battle", "festival", "prize", "country", "university", "publisher"})  # never share a name
LAST_YEAR = 2023


class GraphMaker:
    """A graph that is being filled."""

    def __init__(self, rng: random.Random, names: Names) -> None:
        self.rng = rng
        self.names = names
        self.words = names.words
        self.graph = WorldGraph()
        self.languages: list[Value] = []
        self._known: dict[tuple[str, ...], list[Entity]] = {}
        self.draws: dict[str, Callable[..., Entity | Value | None]] = {
            "entity": lambda _, *types: self.pick(types[0] if len(types) == 1 else rng.choice(types)),
            "living": lambda _: self.pick_living(),
            "person": lambda _, occupation: rng.choice(self.list_people(occupation)),
            "company": lambda _, noun: rng.choice(self.list_companies(noun)),
            "teacher": lambda person: self.pick_adult(self.graph.by_type["person"], person.birth + 20),
            "owner": self.pick_owner,
            "writer": self.pick_writer,
            "language": lambda _: rng.choice(self.languages),
            "name": lambda _, kind: Value(names.make_name(kind)),
            "own year": lambda entity: make_year(entity.birth),
            "year": lambda _, low, high: make_year(rng.randrange(low, high)),
            "number": lambda _, low, high, unit=1: make_measure(rng.randrange(low, high) * unit),
            "measure": lambda _, low, high, unit: make_measure(rng.randrange(low, high), unit),
            "magnitude": lambda _, low, high, unit="": make_measure(int(10 ** rng.uniform(low, high)), unit),
            "money": lambda _, low, high: self.draw_money(low, high),
        }

    def draw_chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, type: str) -> Entity:
        return self.rng.choice(self.graph.by_type[type])

    def pick_living(self) -> Entity:
        """Someone who can hold an office today."""
        chosen = self.rng.choices(self.graph.by_type["person"], k=20)
        return next((p for p in chosen if p.birth >= 1945), self.pick("person"))

    def pick_adult(self, pool: list[Entity], year: int) -> Entity | None:
        """Someone of `pool` who was between 20 and 60 in `year`."""
        for _ in range(12):
            person = self.rng.choice(pool)
            if person.birth + 20 <= year <= person.birth + 60:
                return person
        return None

    def pick_owner(self, company: Entity) -> Entity | None:
        owner = self.pick("company")
        is_free = self.draw_chance(0.4) and owner is not company
        return owner if is_free and self.graph.find_first(owner, "parent company") is not company else None

    def pick_writer(self, film: Entity) -> Entity | None:
        writer = self.pick_adult(self.list_people("screenwriter"), film.birth)
        return self.graph.find_first(film, "director") if writer is None or self.draw_chance(0.25) else writer

    def list_people(self, *occupations: str) -> list[Entity]:
        """People of these occupations, or everyone if there are none."""
        if occupations not in self._known:
            people = self.graph.by_type["person"]
            self._known[occupations] = [p for p in people if p.noun in occupations] or people
        return self._known[occupations]

    def list_companies(self, noun: str) -> list[Entity]:
        """Companies of this kind, or all if there are none."""
        companies = self.graph.by_type["company"]
        return [c for c in companies if c.noun == noun] or companies

    def draw_date(self, in_year: int) -> Value:
        rng, month = self.rng, self.rng.randrange(1, 13)
        day = datetime.date(in_year, month, rng.randint(1, calendar.monthrange(in_year, month)[1]))
        name = self.words["months"][month - 1]
        text = f"{day.day} {name} {day.year}" if rng.random() < 0.6 else f"{name} {day.day}, {day.year}"
        return Value(text, day.toordinal())

    def draw_money(self, low: int, high: int) -> Value:
        """Dollars between `low` and `high` thousand, in figures or in millions."""
        thousands = self.rng.randrange(low, high)
        if thousands < 1000:
            return Value(f"${thousands},000", thousands * 1000)
        tenths = thousands // 100
        return Value(f"${tenths / 10:,.1f} million", tenths * 100_000)

    def add_facts(self, entity: Entity, kind: str) -> None:
        """States what `facts.yaml` has for `kind`."""
        for relation, (share, draw, *arguments) in load_table("facts")["facts"][kind].items():
            if share == 1 or self.draw_chance(share):
                tail = self.draws[draw](entity, *arguments)
                if tail is not None:
                    self.graph.add(entity, relation, tail)

    def add_mutual_fact(self, one: Entity, other: Entity, relation: str, tail: Entity | Value) -> None:
        """A relation between two entities and a value, of each to the other."""
        self.graph.add(one, relation, tail, other)
        self.graph.add(other, relation, tail, one)

    def is_stated(self, head: Entity, relation: str, second: Entity) -> bool:
        return any(f.second == second.id for f in self.graph.facts[head.id].get(relation, ()))

    def create_entity(self, type: str) -> None:
        rng, graph = self.rng, self.graph
        noun = {"person": "", "company": rng.choice(("studio", "label", "company", "company"))}.get(type, type)
        name = None
        if type not in PLAIN and graph.entities and self.draw_chance(EQUAL_NAMES):
            other = rng.choice(graph.entities)
            alike = {type, other.type} <= WORKS or type == other.type == "person"
            if alike or (type != other.type and "person" not in (type, other.type) and other.type not in PLAIN):
                name = other.name
        if type == "person" and name is None and graph.by_type["person"] and self.draw_chance(EQUAL_NAMES):
            name = self.names.find_similar(self.pick("person").name)
        more: dict[str, str | int] = {"birth": rng.randrange(1500, 1930)}
        if type == "person":
            used = {e.noun for e in graph.by_type["person"] if e.name == name} if name else set()
            occupations = self.words["occupations"] + self.words["occupations"][:8]
            noun = rng.choice([o for o in occupations if o not in used] or ["traveller"])
            more = {"gender": rng.choice(("he", "she")), "birth": rng.randrange(1840, 1990)}
        if type in self.words["genres"]:
            more = {"genre": rng.choice(self.words["genres"][type]), "birth": rng.randrange(1880, 2023)}
        name = name or self.names.make_name(noun if noun in ("studio", "label") else type)
        graph.add_entity(type, name, noun, **more)


def make_measure(n: int, unit: str = "") -> Value:
    return Value(f"{n:,} {unit}".rstrip(), n)


def make_year(n: int) -> Value:
    return Value(str(min(n, LAST_YEAR)), min(n, LAST_YEAR))
