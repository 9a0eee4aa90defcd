"""The annotated question: the one form into which every source is read before tasks are built from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, FailFast, Field, StrictBool, TypeAdapter, ValidationError

from revelator import plans
from revelator.config import FewKeys, find_first_fault
from revelator.errors import DataError, ExpressionError, RevelatorError
from revelator.files import replace_file
from revelator.plans.language import ART, BNF, LOGIC, PlanLanguage
from revelator.rows import SPLITS
from revelator.tasks import TASKS

# How an answer follows from the answers of the steps. A branch is an operand of the plan's outermost `+`, or the whole
# plan. An ending may carry an argument after a space. `data_gen.annotate.endings` says each by the operations of plans.
ENDINGS = {
    "none": "the value of the last step",
    "list": "the values of the last leaf, each once",
    "both": "the values of all branches, in order",
    "argmin": "what the last leaf with the least value was asked about",
    "argmax": "what the last leaf with the greatest value was asked about",
    "argmin_source": "the name with which the branch of the least value begins",
    "argmax_source": "the name with which the branch of the greatest value begins",
    "argmin_count": "what the leaf with the shortest list was asked about",
    "argmax_count": "what the leaf with the longest list was asked about",
    "argmin_difference": "the name with which the two branches begin whose values are least far apart",
    "argmax_difference": "the name with which the two branches begin whose values are farthest apart",
    "equal": "yes if all branches end in the same value, else no",
    "judge": "what is judged from the answers of all branches",
    "judge_last": "yes or no, as the last leaf asks of the answers before it",
    "difference": "the distance between the numbers (of dates: the years) in which two branches end",
    "count": "how many values the last leaf has",
    "count_is": "how many answers of the last leaf are the argument",
    "count_after": "how many answers of the last leaf are greater than the argument",
    "which_is": "what the last leaf was asked about, where its answer is the argument",
    "which_after": "what the last leaf was asked about, where its answer is greater than the argument",
    "either": "what the tree asks of both lists together: count, is or after",
    "intersect": "the values that the lists of both branches share",
    "unknown": "the source does not tell, and the answers leave it open",
}
ANNOTATION = "annotation"  # the teacher of gold decompositions: no model
PLAN_FIELDS = {BNF.name: "expression", LOGIC.name: "query", ART.name: "tree"}  # by language of plans
QUESTIONS = "questions.jsonl"  # the file of annotated questions in a folder of them
CHECKED = ConfigDict(extra="forbid", revalidate_instances="always")  # what a reader made is checked like what was read
Text = Annotated[str, Field(pattern=r"\S")]
Texts = Annotated[tuple[str, ...], FailFast()]  # a row of a stranger ends at its first fault
Route = Annotated[str, Field(pattern=f"^({'|'.join(TASKS['route'].labels or ())})$")]
Ending = Annotated[str, Field(pattern=f"^(({'|'.join(ENDINGS)})( .*)?)?$")]
Split = Annotated[str, Field(pattern=f"^({'|'.join(SPLITS)}|)$")]


class DroppedError(RevelatorError):
    """A question that nothing can be learnt from; the message is the reason under which it is counted."""


@dataclass(frozen=True)
class AnnotatedSource:
    """A source of knowledge that a question might be put to: its name, its kind, and what it holds, in words."""

    __pydantic_config__ = CHECKED
    name: Text
    kind: Literal["text", "graph", "web"]
    about: str = ""


@dataclass(frozen=True)
class AnnotatedStep:
    """A single question on the way, its placeholders filled in, with all its answers, the title of the passage that
    states them, and the names of the question's sources that hold them."""

    __pydantic_config__ = CHECKED
    question: str
    answers: Texts
    title: str = ""
    sources: Texts = ()


@dataclass(frozen=True)
class AnnotatedPassage:
    """A passage beside a question; `relevant` says whether a step's answer is read from it, or, of one that a person
    judged, whether it helps to answer the question `asked`."""

    __pydantic_config__ = CHECKED
    title: str
    text: str
    relevant: StrictBool
    id: str = ""
    asked: str = ""


@dataclass(frozen=True)
class AnnotatedQuestion:
    """A question with everything that is known of its solution.

    `expression` is the gold plan in canonical text: the question itself for route single, "" where there is none.
    `parts` are the independent questions of a compound one. `steps` are in executable order, a fan-out written out, and
    each prefix of them is not enough to answer. `answers` holds one value, or all values when the question asks for
    several. `entities` are the names that the question mentions, in order. `ending` says how the answer follows from
    the steps (see `ENDINGS`; "" where it is that of the plan). `query` and `tree` are the question
    as a logical query and as a tree of atomic operators, in canonical text; "" where there is none. `sources` are those
    that its steps choose from. `teacher` says who annotated it, `reader` which language model read the answers, where
    one did; `agreement`, by task, which part of the samples of a teacher that was asked several times agree with the
    one kept. It teaches `tasks`, all if empty. `made_from` are the published questions that it was composed of, which
    its plan may have under other names. `message` is what a person wrote for it in a conversation, "" where that was
    the question itself, and `history` what had been asked and answered there before.
    """

    __pydantic_config__ = CHECKED
    id: Text
    source: str
    licence: str
    split: Split
    question: Text
    route: Route
    expression: str = ""
    parts: Texts = ()
    steps: Annotated[tuple[Annotated[AnnotatedStep, FewKeys], ...], FailFast()] = ()
    answers: Texts = ()
    passages: Annotated[tuple[Annotated[AnnotatedPassage, FewKeys], ...], FailFast()] = ()
    entities: Texts = ()
    ending: Ending = ""
    query: str = ""
    tree: str = ""
    sources: Annotated[tuple[Annotated[AnnotatedSource, FewKeys], ...], FailFast()] = ()
    teacher: str = ANNOTATION
    reader: str = ""
    agreement: dict[str, float] = field(default_factory=dict)
    tasks: Texts = ()
    made_from: Texts = ()
    message: str = ""
    history: tuple[Annotated[AnnotatedStep, FewKeys], ...] = ()

    def list_taught(self) -> Iterator[str]:
        """Every question that its records may teach: itself, its parts, those that it was made from, its steps', those
        that passages were judged for, and the leaves of its plan, because a plan that a model wrote has no steps. A
        plan that does not parse has no leaves."""
        yield self.question
        yield from self.parts
        yield from self.made_from
        yield from (passage.asked for passage in self.passages if passage.asked)
        yield from (step.question for step in (*self.steps, *self.history))
        if self.expression:
            try:
                yield from (leaf.text for leaf in plans.list_leaves(plans.parse(self.expression)))
            except ExpressionError:
                return

    def plan_text(self, language: PlanLanguage) -> str:
        """Its plan in one language; "" where it has none."""
        return getattr(self, PLAN_FIELDS[language.name])

    def replace_plan(self, language: PlanLanguage, plan: Any) -> AnnotatedQuestion:
        """The same question with this plan."""
        change: dict[str, Any] = {PLAN_FIELDS[language.name]: language.render(plan)}
        return replace(self, **change)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; `from_json` is its inverse."""
        return CHECK.dump_python(self, mode="json")

    @classmethod
    def from_json(cls, row: Any) -> AnnotatedQuestion:
        """Checks a row, or a question that a reader made. Raises DataError that names the first field that is missing,
        unknown, or not of its type or range, its value, and the reason."""
        try:
            return CHECK.validate_python(row)
        except ValidationError as error:
            name, reason = find_first_fault(error)
            fault = error.errors(include_url=False)[0]
            found = "" if fault["type"] == "missing" else f", found {quote_value(fault['input'])}"
            raise DataError(f"field {name!r}: {reason}{found}") from error


CHECK: TypeAdapter[AnnotatedQuestion] = TypeAdapter(Annotated[AnnotatedQuestion, FewKeys])


def quote_value(value: object) -> str:
    """The beginning of a value as JSON writes it: errors of data show it to people who know no Python."""
    return json.dumps(value, ensure_ascii=False, default=str)[:60]


@contextmanager
def write_questions(path: Path) -> Iterator[Callable[[AnnotatedQuestion], object]]:
    """Writes annotated questions to `path`, which appears whole when the block ends."""
    with replace_file(path) as file:
        yield lambda question: file.write((json.dumps(question.to_json(), ensure_ascii=False) + "\n").encode())
