"""What a teacher wrote becomes a value only if it holds: plans parse, check, bind and cover the question's names.

Each reader takes the last line of a reply, last of its arguments, and raises DroppedError with the reason against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_gen.annotate.names import find_mention
from data_gen.annotate.validation import check_coverage
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, DroppedError
from revelator.errors import ExpressionError, TaskOutputError
from revelator.fingerprints import normalise
from revelator.plans import list_leaves, list_placeholders, parse
from revelator.plans.language import PlanLanguage
from revelator.tasks import TASKS

LONGEST = 300  # characters of a single question or an answer
Check = Callable[[AnnotatedQuestion], str | None]  # the reason against a question, None if there is none


def read_label(task: str, line: str) -> str:
    word = line.strip(" .'\"`*").lower()
    if word not in (TASKS[task].labels or ()):
        raise DroppedError("no label")
    return word


def read_plan(language: PlanLanguage, question: AnnotatedQuestion, checks: Sequence[Check], line: str) -> Any:
    """A plan with which the question passes the checks."""
    try:
        plan = language.parse(line)
    except ExpressionError as error:
        raise DroppedError(f"does not parse ({error.code})") from error
    planned = question.replace_plan(language, plan)
    for check in checks:
        _drop_if(check(planned))
    return plan


def check_hops(question: AnnotatedQuestion) -> str | None:
    """A plan has two leaves or more."""
    return "the plan has one leaf" if len(list_leaves(parse(question.expression))) < 2 else None


def read_parts(question: AnnotatedQuestion, coverage: float, line: str) -> list[str]:
    try:
        found = [" ".join(part.split()) for part in TASKS["decompose"].parse(line)]
    except TaskOutputError as error:
        raise DroppedError("the parts are no list of questions") from error
    if len(found) < 2 or len({normalise(part) for part in found}) < len(found):
        raise DroppedError("fewer than two parts, or one twice")
    if any(len(part) > LONGEST or list_placeholders(part) for part in found):
        raise DroppedError("not one plain question")
    _drop_if(check_coverage(coverage, replace(question, expression="", parts=tuple(found))))
    return found


def read_answers(documents: Sequence[AnnotatedPassage], line: str) -> tuple[str, ...]:
    """A JSON list of answers, each of which stands in a document, up to spelling; yes and no need none."""
    values = _read_list(line, "the answers to a step are")
    if not all(isinstance(value, str) for value in values):
        raise DroppedError("the answers to a step are no texts")
    answers = tuple(dict.fromkeys(" ".join(value.split()) for value in values if normalise(value)))
    if not answers or len(line) > LONGEST:
        raise DroppedError("no answer to a step")
    texts = [f" {normalise(f'{d.title} {d.text}')} " for d in documents]
    for said in map(normalise, answers):
        if said not in ("yes", "no") and not any(f" {said} " in text for text in texts):
            raise DroppedError("an answer stands in no document")
    return answers


@dataclass(frozen=True)
class SimpleQuestion:
    """A single question and the answer that a document states."""

    question: str
    answer: str


def read_simple_questions(title: str, text: str, most: int, line: str) -> list[SimpleQuestion]:
    """Those of a list that name the title and whose answer stands in the document and not in the question."""
    rows = [row for row in _read_list(line, "the questions are") if _is_simple(row, title, text)]
    found = [SimpleQuestion(row["question"], row["answer"]) for row in rows]
    by_answer = {normalise(simple.answer): simple for simple in reversed(found)}
    distinct = list({normalise(s.question): s for s in reversed(by_answer.values())}.values())
    if not distinct:
        raise DroppedError("no question that names the title and is answered by the document")
    return distinct[:most]


def _is_simple(row: Any, title: str, text: str) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(k), str) for k in ("question", "answer")):
        return False
    question, answer = row["question"], f" {normalise(row['answer'])} "
    is_answered = bool(answer.strip()) and answer in f" {normalise(text)} " and answer not in f" {normalise(question)} "
    is_plain = len(question) <= LONGEST and "\n" not in question and not list_placeholders(question)
    names_title = find_mention(title.partition(" (")[0], question) is not None
    return is_answered and is_plain and question.endswith("?") and names_title


def read_combined(title: str, simple: Sequence[SimpleQuestion], line: str) -> str:
    """One question that names the title, keeps something of each question's words, and gives no answer away."""
    name = title.partition(" (")[0]
    if not line or len(line) > LONGEST * len(simple) or "{" in line:
        raise DroppedError("no question")
    if find_mention(name, line) is None:
        raise DroppedError("the compound question does not name the title")
    said = normalise(line)
    if any(f" {normalise(s.answer)} " in f" {said} " for s in simple):
        raise DroppedError("the compound question gives an answer away")
    for single in simple:
        words = _stems(single.question) - _stems(name)
        if words and len(words & _stems(line)) < len(words) / 3:
            raise DroppedError("the compound question leaves a part out")
    return line


QUESTION_WORDS = frozenset(
    ("whom", "whose", "what", "which", "when", "where", "many", "much", "does", "have", "been", "were", "that", "with")
)


def _stems(text: str) -> set[str]:
    """The beginnings of words with four letters or more, question words aside."""
    return {w[:5] for w in re.findall(r"\w{4,}", normalise(text)) if w not in QUESTION_WORDS}


def _read_list(line: str, what: str) -> list[Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise DroppedError(f"{what} no JSON list")
    return values


def _drop_if(fault: str | None) -> None:
    if fault:
        raise DroppedError(fault)
