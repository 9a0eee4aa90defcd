"""The knowledge graph of a world: relations (`relations.yaml`), entities, and the facts between them.

A relation says what it connects and has every wording of it. Facts are plausible in time and place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from data_gen.world.names import load_table

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
    return {id: _read_relation(id, row) for id, row in load_table("relations").items()}


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
class WorldGraph:
    """Entities and facts of one part of a world."""

    entities: list[Entity] = field(default_factory=list)
    facts: dict[int, dict[str, list[Fact]]] = field(default_factory=lambda: defaultdict(dict))
    by_type: dict[str, list[Entity]] = field(default_factory=lambda: defaultdict(list))

    def add_entity(self, type: str, name: str, noun: str, **more: str | int) -> Entity:
        entity = Entity(len(self.entities), type, name, noun, **more)  # type: ignore[arg-type]
        self.entities.append(entity)
        self.by_type[type].append(entity)
        return entity

    def add(self, head: Entity, relation: str, tail: Entity | Value, second: Entity | None = None) -> None:
        value = tail if isinstance(tail, Value) else tail.id
        fact = Fact(head.id, relation, value, second.id if second else None)
        self.facts[head.id].setdefault(relation, []).append(fact)

    def find_first(self, head: Entity, relation: str) -> Entity | None:
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
