"""What a teacher wrote becomes a value only if it holds: plans parse, check, bind and cover the question's names.

Of several samples of one call the first valid one is kept, and how many agree with it is recorded. A reader takes the
last line of a reply and raises DroppedError with the reason against it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_gen.annotate.names import find_mention
from data_gen.annotate.validation import check_coverage
from data_gen.leakage import normalise
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from data_gen.teacher.chats import Prompts
from data_gen.teacher.client import Client
from data_gen.teacher.config import SamplingConfig
from revelator.errors import ExpressionError, RevelatorError, TaskOutputError
from revelator.plans import leaves, parse, placeholders
from revelator.plans.language import PlanLanguage
from revelator.tasks import TASKS
from revelator.tasks.chat_prompts import read_last_line


class DroppedError(RevelatorError):
    """Nothing of a teacher's answers can be kept; the message is the reason under which it is counted."""


@dataclass(frozen=True)
class Decision:
    """What was kept, and the part of all samples, valid or not, that agree with it."""

    value: Any
    agreement: float


def agreement_key(value: Any) -> Hashable:
    """Lists of parts agree if they are as long; answers, labels and questions up to spelling."""
    if isinstance(value, tuple):
        return tuple(map(normalise, value))
    return len(value) if isinstance(value, list) else normalise(value)


@dataclass(frozen=True)
class Asker:
    """Asks one prompt several times, and decides."""

    client: Client
    prompts: Prompts
    sampling: SamplingConfig

    async def ask(
        self,
        prompt: str,
        data: Mapping[str, Any],
        read: Callable[[str], Any],
        key: Callable[[Any], Hashable] = agreement_key,
    ) -> Decision:
        """The first sample that `read` accepts; `key` gives equal values to samples that agree.

        `read` gets the last line of a reply and raises DroppedError with the reason against it. Raises DroppedError,
        its reason behind the name of the prompt, when every sample is refused, or too few agree.
        """
        messages, temperatures = self.prompts.chat(prompt, data), self.sampling.temperatures
        calls = [
            self.client.ask(messages, temperatures[i % len(temperatures)], seed=i) for i in range(self.sampling.samples)
        ]
        replies = await asyncio.gather(*calls, return_exceptions=True)  # what is under way is paid for: let it end
        values, reasons = [], []
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
            try:
                if reply.finish == "length":
                    raise DroppedError("the reply is cut off")
                values.append(read(read_last_line(reply.text)))
            except DroppedError as error:
                reasons.append(error.message)
        if not values:
            raise DroppedError(f"{prompt}: {reasons[0]}")
        agreement = sum(key(value) == key(values[0]) for value in values) / len(replies)
        if agreement < self.sampling.agreement:
            raise DroppedError(f"{prompt}: too few samples agree")
        return Decision(values[0], agreement)


LONGEST = 300  # characters of a single question or an answer


def expect_label(task: str) -> Callable[[str], str]:
    def read(line: str) -> str:
        word = line.strip(" .'\"`*").lower()
        if word not in (TASKS[task].labels or ()):
            raise DroppedError("no label")
        return word

    return read


Check = Callable[[AnnotatedQuestion], str | None]  # the reason against a question, None if there is none


def expect_plan(language: PlanLanguage, question: AnnotatedQuestion, checks: Sequence[Check]) -> Callable[[str], Any]:
    """A plan with which the question passes the checks."""

    def read(line: str) -> Any:
        try:
            plan = language.parse(line)
        except ExpressionError as error:
            raise DroppedError(f"does not parse ({error.code})") from error
        planned = question.with_plan(language, plan)
        for check in checks:
            _drop_if(check(planned))
        return plan

    return read


def check_hops(question: AnnotatedQuestion) -> str | None:
    """A plan has two leaves or more."""
    return "the plan has one leaf" if len(leaves(parse(question.expression))) < 2 else None


def expect_parts(question: AnnotatedQuestion, coverage: float) -> Callable[[str], list[str]]:
    def read(line: str) -> list[str]:
        try:
            found = [" ".join(part.split()) for part in TASKS["decompose"].parse(line)]
        except TaskOutputError as error:
            raise DroppedError("the parts are no list of questions") from error
        if len(found) < 2 or len({normalise(part) for part in found}) < len(found):
            raise DroppedError("fewer than two parts, or one twice")
        for part in found:
            _require_single(part)
        _drop_if(check_coverage(coverage, replace(question, expression="", parts=tuple(found))))
        return found

    return read


def expect_next_question(asked: Sequence[AnnotatedStep]) -> Callable[[str], str]:
    known = {normalise(step.question) for step in asked}

    def read(line: str) -> str:
        _require_single(line)
        if normalise(line) in known:
            raise DroppedError("the next question was asked before")
        return line

    return read


def expect_answers(documents: Sequence[AnnotatedPassage]) -> Callable[[str], tuple[str, ...]]:
    """A JSON list of answers, each of which stands in a document, up to spelling; yes and no need none."""
    texts = [f" {normalise(f'{d.title} {d.text}')} " for d in documents]

    def read(line: str) -> tuple[str, ...]:
        values = _read_list(line, "the answers to a step are")
        if not all(isinstance(value, str) for value in values):
            raise DroppedError("the answers to a step are no texts")
        answers = tuple(dict.fromkeys(" ".join(value.split()) for value in values if normalise(value)))
        if not answers or len(line) > LONGEST:
            raise DroppedError("no answer to a step")
        for said in map(normalise, answers):
            if said not in ("yes", "no") and not any(f" {said} " in text for text in texts):
                raise DroppedError("an answer stands in no document")
        return answers

    return read


@dataclass(frozen=True)
class SimpleQuestion:
    """A single question and the answer that a document states."""

    question: str
    answer: str


def expect_simple_questions(title: str, text: str, most: int) -> Callable[[str], list[SimpleQuestion]]:
    """Those of a list that name the title and whose answer stands in the document and not in the question."""
    said, name = f" {normalise(text)} ", title.partition(" (")[0]

    def holds(row: Any) -> bool:
        if not isinstance(row, dict) or not all(isinstance(row.get(k), str) for k in ("question", "answer")):
            return False
        asked, given = f" {normalise(row['question'])} ", normalise(row["answer"])
        fine = bool(given) and f" {given} " in said and f" {given} " not in asked
        one = len(row["question"]) <= LONGEST and "\n" not in row["question"] and not placeholders(row["question"])
        return fine and one and row["question"].endswith("?") and find_mention(name, row["question"]) is not None

    def read(line: str) -> list[SimpleQuestion]:
        rows = [row for row in _read_list(line, "the questions are") if holds(row)]
        found = [SimpleQuestion(row["question"], row["answer"]) for row in rows]
        by_answer = {normalise(simple.answer): simple for simple in reversed(found)}
        distinct = list({normalise(s.question): s for s in reversed(by_answer.values())}.values())
        if not distinct:
            raise DroppedError("no question that names the title and is answered by the document")
        return distinct[:most]

    return read


def expect_combined(title: str, simple: Sequence[SimpleQuestion]) -> Callable[[str], str]:
    """One question that names the title, keeps something of each question's words, and gives no answer away."""
    name = title.partition(" (")[0]

    def read(line: str) -> str:
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

    return read


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


def _require_single(text: str) -> None:
    if not text or len(text) > LONGEST or placeholders(text):
        raise DroppedError("not one plain question")


def _drop_if(fault: str | None) -> None:
    if fault:
        raise DroppedError(fault)
