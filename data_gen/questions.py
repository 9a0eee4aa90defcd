"""The annotated question: the one form into which every source is read before tasks are built from it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from revelator import plans
from revelator.errors import ConfigError, DataError, ExpressionError
from revelator.files import sync_folder
from revelator.plans.language import ART, BNF, LOGIC, PlanLanguage
from revelator.rows import SPLITS
from revelator.tasks import TASKS

SURROGATE = re.compile("[\ud800-\udfff]")
# How an answer follows from the answers of the steps. A branch is an operand of the plan's outermost `+`, or the whole
# plan. An operation may carry an argument after a space.
OPERATIONS = {
    "none": "the value of the last step",
    "list": "the values of the last leaf, each once",
    "both": "the values of all branches, in order",
    "argmin": "what the last leaf with the least value was asked about",
    "argmax": "what the last leaf with the greatest value was asked about",
    "argmin_source": "the name with which the branch of the least value begins",
    "argmax_source": "the name with which the branch of the greatest value begins",
    "argmin_count": "what the leaf with the shortest list was asked about",
    "argmax_count": "what the leaf with the longest list was asked about",
    "same": "yes if all branches end in the same value, else no",
    "difference": "the distance between the numbers (of dates: the years) in which two branches end",
    "count": "how many values the last leaf has",
    "count_is": "how many answers of the last leaf are the argument",
    "count_after": "how many answers of the last leaf are greater than the argument",
    "intersect": "the values that the lists of both branches share",
}
ANNOTATION = "annotation"  # the teacher of gold decompositions: no model
PLAN_FIELDS = {BNF.name: "expression", LOGIC.name: "query", ART.name: "tree"}  # by language of plans
QUESTIONS = "questions.jsonl"  # the file of annotated questions in a folder of them


@dataclass(frozen=True)
class AnnotatedStep:
    """A single question on the way, its placeholders filled in, with all its answers and the title of the passage that
    states them."""

    question: str
    answers: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class AnnotatedPassage:
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
    the steps (see `OPERATIONS`; "" where a source does not tell). `query` and `tree` are the question
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
    passages: tuple[AnnotatedPassage, ...] = ()
    entities: tuple[str, ...] = ()
    operation: str = ""
    query: str = ""
    tree: str = ""
    teacher: str = ANNOTATION
    agreement: dict[str, float] = field(default_factory=dict)

    def list_taught(self) -> Iterator[str]:
        """Every question that its records may teach: itself, its parts, its steps', and the leaves of its plan, because
        a plan that a model wrote has no steps. A plan that does not parse has no leaves."""
        yield self.question
        yield from self.parts
        yield from (step.question for step in self.steps)
        if self.expression:
            try:
                yield from (leaf.text for leaf in plans.leaves(plans.parse(self.expression)))
            except ExpressionError:
                return

    def plan_text(self, language: PlanLanguage) -> str:
        """Its plan in one language; "" where it has none."""
        return getattr(self, PLAN_FIELDS[language.name])

    def with_plan(self, language: PlanLanguage, plan: Any) -> AnnotatedQuestion:
        """The same question with this plan."""
        change: dict[str, Any] = {PLAN_FIELDS[language.name]: language.render(plan)}
        return replace(self, **change)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; `from_json` is its inverse."""
        lists = {
            "parts": list(self.parts),
            "steps": [{**vars(step), "answers": list(step.answers)} for step in self.steps],
            "answers": list(self.answers),
            "passages": [dict(vars(passage)) for passage in self.passages],
            "entities": list(self.entities),
            "agreement": dict(self.agreement),
        }
        return {**vars(self), **lists}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> AnnotatedQuestion:
        """Reads a row. Raises DataError that names the missing, unknown or mistyped field, and OutdatedFileError for a
        row of an earlier version, whose steps hold their answers as one text."""
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
                    "steps": tuple(_read_step(step) for step in row.get("steps", ())),
                    "answers": tuple(row.get("answers", ())),
                    "passages": tuple(AnnotatedPassage(**passage) for passage in row.get("passages", ())),
                    "entities": tuple(row.get("entities", ())),
                }
            )
        except TypeError as error:
            raise DataError(f"not an annotated question: {error}", where=str(row.get("id", ""))) from error


LISTS = ("parts", "steps", "answers", "passages", "entities")


class OutdatedFileError(DataError):
    """A file of annotated questions that an earlier version wrote."""


def _read_step(row: dict[str, Any]) -> AnnotatedStep:
    fields = {**row}
    if "answer" in fields:
        raise OutdatedFileError(
            "a step holds its answers as one text, 'answer', and not as a list, 'answers'",
            hint="make the file again: the text cannot be split safely, because an answer may hold a semicolon",
        )
    answers = fields.pop("answers", None)
    if not isinstance(answers, list):
        raise DataError(f"field 'steps.answers' must be a list, found {answers!r:.60}")
    return AnnotatedStep(answers=tuple(answers), **fields)


def check_question(question: AnnotatedQuestion) -> AnnotatedQuestion:
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
            if isinstance(item, AnnotatedStep | AnnotatedPassage):
                for part, inner in vars(item).items():
                    for value in inner if part == "answers" else (inner,):
                        yield f"{name}.{part}", value, bool if part == "relevant" else str
            else:
                yield name, item, str


@contextmanager
def write_questions(path: Path) -> Iterator[Callable[[AnnotatedQuestion], None]]:
    """Writes annotated questions to `path`, which appears whole when the block ends."""
    aside = path.with_name(f".{path.name}")
    with aside.open("w", encoding="utf-8") as file:
        yield lambda row: print(json.dumps(row.to_json(), ensure_ascii=False), file=file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)


def check_place(out: Path, force: bool, kind: str = "world") -> None:
    """Refuses a folder that holds something other than what was made as this `kind`."""
    if out.is_dir() and any(out.iterdir()) and not (force or _kind(out) == kind):
        raise ConfigError(
            f"{out} is not empty and not a {kind}",
            where="--out",
            hint="name another folder, or give --force to replace it",
        )
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file", where="--out", hint="name a folder")


def _kind(folder: Path) -> str | None:
    try:
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("kind")
    except (OSError, ValueError, AttributeError):
        return None
