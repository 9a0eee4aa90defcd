"""The atomic operators of a tree's nodes and of a plan's leaves (AtomR, section 3.2), and how they are spelled as text:
`Search("UHF", "film")`, `Relate("UHF", ^"directed by")`, `Filter(["{films}"], "made in 1989")`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictBool

from revelator.plans.bnf import list_placeholders, substitute
from revelator.plans.grammar import write_string

_STRING = r'"(?:[^"\\]|\\.)*+"'
_SPELLED = re.compile(
    rf"(Search|Relate|Filter)\((\[{_STRING}(?:, ?{_STRING})*+\]|{_STRING})(?:, ?(\^?)({_STRING}))?\)", re.DOTALL
)


STRICT = ConfigDict(extra="forbid", regex_engine="python-re")  # whose \S is the opposite of Python's white space
Text = Annotated[str, Field(pattern=r"\S")]


class _Call:
    """What the three operators share. Each field is a text or a tuple of texts, in which references may stand. A field
    that is read from JSON is checked against its type, one that code makes is not."""

    __slots__ = ()
    __pydantic_config__ = STRICT

    def locate_texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Finds the texts, each with its path below the operator."""
        for name in self.__dataclass_fields__:  # type: ignore[attr-defined]
            value = getattr(self, name)
            if isinstance(value, str):
                yield (name,), value
            elif isinstance(value, tuple):
                yield from (((name, place), text) for place, text in enumerate(value))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.locate_texts())

    def rewrite(self, write: Callable[[str], str]) -> Any:
        """The operator with each of its texts rewritten."""

        def write_value(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(write, value))
            return write(value) if value and isinstance(value, str) else value

        return type(self)(*(write_value(getattr(self, name)) for name in self.__dataclass_fields__))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Search(_Call):
    """Which entities a name stands for; `descriptor` tells them from others of that name."""

    name: Text
    descriptor: Text = ""


@dataclass(frozen=True, slots=True)
class Relate(_Call):
    """One step from `head`: along the relation `to`, to the attribute `to`, or the relation to the entity `to`.

    `inverse` says from which end the relation is read: "directed by" leads from a film to a person, its inverse from
    a person to films. None leaves it to the source: as it is written, and from the other end if that finds nothing.
    """

    head: Text
    to: Text
    inverse: StrictBool | None = None


@dataclass(frozen=True, slots=True)
class Filter(_Call):
    """Those of `entities` that meet `condition`."""

    entities: Annotated[tuple[Text, ...], Field(min_length=1)]
    condition: Text


Call = Search | Relate | Filter
CALLS: dict[str, type[Call]] = {"search": Search, "relate": Relate, "filter": Filter}


def spell_call(call: Call) -> str:
    """`Relate("UHF", "directed by")`; the inverse of a relation carries `^`, as in a SPARQL path."""
    match call:
        case Search(name, descriptor):
            arguments = [write_string(name)] + ([write_string(descriptor)] if descriptor else [])
        case Relate(head, to, inverse):
            arguments = [write_string(head), ("^" if inverse else "") + write_string(to)]
        case Filter(entities, condition):
            arguments = [f"[{', '.join(map(write_string, entities))}]", write_string(condition)]
    return f"{type(call).__name__}({', '.join(arguments)})"


def read_call(text: str) -> Call | None:
    """Reads an operator as `spell_call` writes it, as the leaf of a plan may be; None for any other text, and for an
    operator without a text that it needs."""
    if not (match := _SPELLED.fullmatch(text)):
        return None
    name, *written, inverse, last = match.groups()
    try:
        values = [json.loads(part, strict=False) for part in (*written, last) if part]
    except json.JSONDecodeError:
        return None
    texts = [one for value in values for one in ([value] if isinstance(value, str) else value)]
    if not all(map(str.strip, texts)) or (inverse and name != "Relate"):
        return None
    match name, values:
        case "Search", [str(entity), *descriptor]:
            return Search(entity, *descriptor)
        case "Relate", [str(head), to]:
            return Relate(head, to, True if inverse else None)
        case "Filter", [list(entities), condition]:
            return Filter(tuple(entities), condition)
    return None


def fill(call: Call, values: Mapping[str, Sequence[str]]) -> tuple[Call, tuple[str, ...]]:
    """An operator with values in place of its references, and the entities that it starts from: one that is nothing but
    a reference stands for each of its values."""
    joined = {name: ", ".join(found) for name, found in values.items()}

    def expand(text: str) -> Sequence[str]:
        whole = text.strip().removeprefix("{").removesuffix("}")
        return values[whole] if list_placeholders(text) == (whole,) and whole in values else [substitute(text, joined)]

    match call:
        case Search(name, descriptor):
            return (found := Search(substitute(name, joined), substitute(descriptor, joined))), (found.name,)
        case Relate(head, to, inverse):
            heads = tuple(expand(head))
            return Relate(", ".join(heads), substitute(to, joined), inverse), heads
        case Filter(entities, condition):
            kept = tuple(dict.fromkeys(value for entity in entities for value in expand(entity)))
            return Filter(kept, substitute(condition, joined)), kept
