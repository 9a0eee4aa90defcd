"""The knowledge graph of a world: relations (`relations.yaml`), entities, and the facts between them.

A relation says what it connects and has every wording of it. Facts are plausible in time and place.
"""

from __future__ import annotations

import calendar
import datetime
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from data_gen.world.names import Names, load_vocabulary

VALUE_KINDS = frozenset({"year", "date", "quantity", "money", "text"})


@dataclass(frozen=True)
class Wording:
    """A question and the noun phrases that ask for the same in the same words."""

    question: str
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """One relation; see the head of `relations.yaml` for each field."""

    id: str
    head: tuple[str, ...]
    tail: tuple[str, ...]
    name: str
    ask: tuple[Wording, ...]
    say: tuple[str, ...]
    second: tuple[str, ...] = ()
    inverse: tuple[str, ...] = ()
    one: tuple[Wording, ...] = ()
    part: tuple[str, ...] = ()
    compare: tuple[tuple[str, str], ...] = ()
    same: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()
    count: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    all: str = ""
    core: bool = False
    many: bool = False
    limit: int = 5

    @property
    def is_list(self) -> bool:
        return self.many or bool(self.inverse)

    @property
    def is_value(self) -> bool:
        return self.tail[0] in VALUE_KINDS


@cache
def load_relations() -> dict[str, Relation]:
    """All relations by id, in the order of the file."""
    text = files("data_gen.world").joinpath("relations.yaml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = yaml.load(text, Loader=yaml.CSafeLoader)
    return {id: _read_relation(id, row) for id, row in rows.items()}


def _read_relation(id: str, row: dict[str, Any]) -> Relation:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    for key in ("tail", "second"):
        if isinstance(fields.get(key), str):
            fields[key] = (fields[key],)
    for key in ("ask", "one"):
        fields[key] = tuple(_read_wording(text) for text in fields.get(key, ()))
    fields["compare"] = tuple(_read_extreme(text) for text in fields.get("compare", ()))
    return Relation(id=id, **fields)


def _read_wording(text: str) -> Wording:
    question, *phrases = (part.strip() for part in text.split(" | "))
    return Wording(question, tuple(phrases))


def _read_extreme(text: str) -> tuple[str, str]:
    which, said = text.split(" | ")
    return which.strip(), said.strip()


ARTICLE = frozenset({"river", "festival", "battle", "prize"})  # types whose names take "the" in running text


class Value(NamedTuple):
    """A value that is no entity: its text in documents, and a number that orders it (0 for plain text)."""

    text: str
    key: float = 0.0


@dataclass
class Entity:
    """`name` is the surface, `title` the surface with a qualifier where another entity shares it; `noun` what it is."""

    id: int
    type: str
    name: str
    noun: str
    title: str = ""
    gender: str = ""
    birth: int = 0  # year of birth, founding, release
    genre: str = ""

    @property
    def mention(self) -> str:
        return f"the {self.title}" if self.type in ARTICLE else self.title


class Fact(NamedTuple):
    """`head relation tail`, or with `second` a relation between two entities and a value."""

    head: int
    relation: str
    tail: int | Value
    second: int | None = None


@dataclass
class Graph:
    """Entities and facts of one part of a world."""

    entities: list[Entity] = field(default_factory=list)
    facts: dict[int, dict[str, list[Fact]]] = field(default_factory=lambda: defaultdict(dict))
    by_type: dict[str, list[Entity]] = field(default_factory=lambda: defaultdict(list))

    def new(self, type: str, name: str, noun: str, **more: str | int) -> Entity:
        entity = Entity(len(self.entities), type, name, noun, **more)  # type: ignore[arg-type]
        self.entities.append(entity)
        self.by_type[type].append(entity)
        return entity

    def add(self, head: Entity, relation: str, tail: Entity | Value, second: Entity | None = None) -> None:
        value = tail if isinstance(tail, Value) else tail.id
        fact = Fact(head.id, relation, value, second.id if second else None)
        self.facts[head.id].setdefault(relation, []).append(fact)

    def one(self, head: Entity, relation: str) -> Entity | None:
        """The entity that `relation` gives for `head`, if it has one."""
        found = self.facts[head.id].get(relation)
        return self.entities[found[0].tail] if found and isinstance(found[0].tail, int) else None

    def all_facts(self) -> Iterator[Fact]:
        for by_relation in self.facts.values():
            for found in by_relation.values():
                yield from found

    def text(self, tail: int | Value) -> str:
        """The text of a tail as it stands in documents and answers."""
        return tail.text if isinstance(tail, Value) else self.entities[tail].title


def add_inverses(graph: Graph) -> None:
    """States each list relation from the facts that it is the inverse of, whole or not at all (more than `limit`)."""
    incoming: dict[tuple[str, int], list[int]] = defaultdict(list)
    wanted = {name for relation in load_relations().values() for name in relation.inverse}
    for fact in graph.all_facts():
        if fact.relation in wanted and isinstance(fact.tail, int):
            incoming[fact.relation, fact.tail].append(fact.head)
    for relation in load_relations().values():
        for entity in [e for type in relation.head for e in graph.by_type[type]] if relation.inverse else ():
            heads = [head for name in relation.inverse for head in incoming[name, entity.id]]
            heads = [head for head in dict.fromkeys(heads) if graph.entities[head].type in relation.tail]
            if 0 < len(heads) <= relation.limit:
                for head in heads:
                    graph.add(entity, relation.id, graph.entities[head])


def qualify(graph: Graph) -> None:
    """Titles: the name, and for names that several entities share, what tells them apart in parentheses."""
    shared: dict[str, list[Entity]] = defaultdict(list)
    for entity in graph.entities:
        shared[entity.name.lower()].append(entity)
    for group in shared.values():
        for entity in group:
            entity.title = entity.name if len(group) == 1 else f"{entity.name} ({entity.noun})"
        for clash in _find_clashes(group):
            clash.title = f"{clash.name} ({clash.birth} {clash.noun})" if clash.type != "person" else clash.title
        for number, clash in enumerate(_find_clashes(group)):
            clash.title = f"{clash.title[:-1]}, {'abcdefghijklmnopqrstuvwxyz'[number % 26]})"


def _find_clashes(group: list[Entity]) -> list[Entity]:
    titles = [entity.title for entity in group]
    return [entity for entity in group if titles.count(entity.title) > 1]


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


def pick_adult(rng: random.Random, pool: list[Entity], year: int) -> Entity | None:
    """Someone of `pool` who was between 20 and 60 in `year`."""
    for _ in range(12):
        person = rng.choice(pool)
        if person.birth + 20 <= year <= person.birth + 60:
            return person
    return None
