"""The annotated question: the one form into which every source is read before tasks are built from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from revelator import plans
from revelator.errors import DataError, ExpressionError
from revelator.rows import SPLITS
from revelator.tasks import TASKS

SURROGATE = re.compile("[\ud800-\udfff]")
ANNOTATION = "annotation"  # the teacher of gold decompositions: no model


@dataclass(frozen=True)
class AnnotatedStep:
    """A single question that was asked on the way, placeholders filled in, its answer, and where that answer stands.

    Several values are joined by "; ". `title` is the title of the passage that states the answer.
    """

    question: str
    answer: str
    title: str = ""


@dataclass(frozen=True)
class Evidence:
    """A passage beside a question; `relevant` says whether a step's answer is read from it."""

    title: str
    text: str
    relevant: bool
    id: str = ""


@dataclass(frozen=True)
class AnnotatedQuestion:
    """A question with everything that is known of its solution.

    `expression` is the gold plan in canonical text: the question itself for route single, "" where there is none.
    `parts` are the independent questions of a compound one. `steps` are in executable order, a fan-out written out, and
    each prefix of them is not enough to answer. `answers` holds one value, or all values when the question asks for
    several. `entities` are the names that the question mentions, in order. `operation` says how the answer follows from
    the steps (see `data_gen.world.operations`; "" where a source does not tell). `query` and `tree` are the question
    as a logical query and as a tree of atomic operators, in canonical text; "" where there is none. `teacher` says who
    annotated it; `agreement`, by task, which part of the samples of a teacher that was asked several times agree with
    the one kept.
    """

    id: str
    source: str
    licence: str
    split: str
    question: str
    route: str
    expression: str = ""
    parts: tuple[str, ...] = ()
    steps: tuple[AnnotatedStep, ...] = ()
    answers: tuple[str, ...] = ()
    passages: tuple[Evidence, ...] = ()
    entities: tuple[str, ...] = ()
    operation: str = ""
    query: str = ""
    tree: str = ""
    teacher: str = ANNOTATION
    agreement: dict[str, float] = field(default_factory=dict)

    def asked(self) -> Iterator[str]:
        """Every question that its records may teach: itself, its parts, its steps', and the leaves of its plan, for a
        plan that a model wrote has no steps. A plan that does not parse has none."""
        yield self.question
        yield from self.parts
        yield from (step.question for step in self.steps)
        if self.expression:
            try:
                yield from (leaf.text for leaf in plans.leaves(plans.parse(self.expression)))
            except ExpressionError:
                return

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; `from_json` is its inverse."""
        lists = {
            "parts": list(self.parts),
            "steps": [dict(vars(step)) for step in self.steps],
            "answers": list(self.answers),
            "passages": [dict(vars(passage)) for passage in self.passages],
            "entities": list(self.entities),
            "agreement": dict(self.agreement),
        }
        return {**vars(self), **lists}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> AnnotatedQuestion:
        """Reads a row. Raises DataError that names the missing, unknown or mistyped field."""
        for name in LISTS:
            if not isinstance(row.get(name, []), list):
                raise DataError(f"field {name!r} must be a list, found {row[name]!r:.60}")
        if not isinstance(row.get("agreement", {}), dict):
            raise DataError(f"field 'agreement' must be an object, found {row['agreement']!r:.60}")
        try:
            return cls(
                **{
                    **row,
                    "parts": tuple(row.get("parts", ())),
                    "steps": tuple(AnnotatedStep(**step) for step in row.get("steps", ())),
                    "answers": tuple(row.get("answers", ())),
                    "passages": tuple(Evidence(**passage) for passage in row.get("passages", ())),
                    "entities": tuple(row.get("entities", ())),
                }
            )
        except TypeError as error:
            raise DataError(f"not an annotated question: {error}", where=str(row.get("id", ""))) from error


LISTS = ("parts", "steps", "answers", "passages", "entities")


def checked(question: AnnotatedQuestion) -> AnnotatedQuestion:
    """The question itself. Raises DataError that names the first field whose value is not of its type or range."""
    for name, value, kind in _values(question):
        if not isinstance(value, kind):
            raise DataError(f"field {name!r} must be {_KINDS[kind]}, found {value!r:.60}")
        if isinstance(value, str) and not value.isascii() and SURROGATE.search(value):
            raise DataError(f"field {name!r} holds half of a surrogate pair, which is no character")
    for name in ("id", "question"):
        if not getattr(question, name).strip():
            raise DataError(f"field {name!r} must be a non-empty text")
    for name, values in (("route", TASKS["route"].labels or ()), ("split", ("", *SPLITS))):
        if getattr(question, name) not in values:
            allowed = ", ".join(map(repr, values))
            raise DataError(f"field {name!r} must be one of {allowed}, found {getattr(question, name)!r:.60}")
    return question


_KINDS: dict[type, str] = {str: "a text", bool: "true or false", float: "a number with a decimal point"}


def _values(question: AnnotatedQuestion) -> Iterator[tuple[str, object, type]]:
    """Every value below the question with the name of its field and its type."""
    for task, share in question.agreement.items():
        yield f"agreement.{task}", share, float
    for name, value in vars(question).items():
        if name == "agreement":
            continue
        for item in value if name in LISTS else (value,):
            if isinstance(item, AnnotatedStep | Evidence):
                for part, inner in vars(item).items():
                    yield f"{name}.{part}", inner, bool if part == "relevant" else str
            else:
                yield name, item, str
