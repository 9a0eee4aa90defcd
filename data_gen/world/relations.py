"""The relations of the world as values: what each connects, and every wording of it (`relations.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

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
def relations() -> dict[str, Relation]:
    """All relations by id, in the order of the file."""
    text = files("data_gen.world").joinpath("relations.yaml").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = yaml.load(text, Loader=yaml.CSafeLoader)
    return {id: _relation(id, row) for id, row in rows.items()}


def _relation(id: str, row: dict[str, Any]) -> Relation:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    for key in ("tail", "second"):
        if isinstance(fields.get(key), str):
            fields[key] = (fields[key],)
    for key in ("ask", "one"):
        fields[key] = tuple(_wording(text) for text in fields.get(key, ()))
    fields["compare"] = tuple(_extreme(text) for text in fields.get("compare", ()))
    return Relation(id=id, **fields)


def _wording(text: str) -> Wording:
    question, *phrases = (part.strip() for part in text.split(" | "))
    return Wording(question, tuple(phrases))


def _extreme(text: str) -> tuple[str, str]:
    which, said = text.split(" | ")
    return which.strip(), said.strip()
