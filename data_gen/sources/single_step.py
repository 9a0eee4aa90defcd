"""Questions that one step answers: Natural Questions (open), TriviaQA, WebQuestions, and pairs of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion, AnnotatedStep, Evidence
from data_gen.leakage import normalise
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from revelator import plans

DESCRIPTION = re.compile(r'\(description "((?:[^"\\]|\\.)*)"\)|\(description ([^"()]+)\)')


def single(
    identity: str, source: str, licence: str, asked: str, answers: tuple[str, ...], passages: tuple[Evidence, ...] = ()
) -> AnnotatedQuestion:
    """A question that is its own plan and only step; its first answer stands for all in what is known."""
    title = next((passage.title for passage in passages if passage.relevant), "")
    return AnnotatedQuestion(
        id=identity,
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="single",
        expression=plans.render(plans.Atomic(asked)),
        steps=(AnnotatedStep(asked, answers[0], title),),
        answers=answers,
        passages=passages,
    )


def read_natural_questions(path: Path | str, source: str = "nq", licence: str = "CC-BY-SA-3.0") -> Iterator[Outcome]:
    """NQ-open (Lee et al., 2019): `question`, and `answer` with one or more texts."""
    return _read(path, source, licence, lambda row: fields.texts(row, "answer"))


def read_trivia(path: Path | str, source: str = "triviaqa", licence: str = "Apache-2.0") -> Iterator[Outcome]:
    """TriviaQA (Joshi et al., 2017): `{"Data": [{"Question", "Answer": {"Value", …}}]}`, or `question, answer`."""
    return _read(path, source, licence, _trivia_answers, member="Data")


def read_web_questions(path: Path | str, source: str = "webquestions", licence: str = "CC-BY-4.0") -> Iterator[Outcome]:
    """WebQuestions (Berant et al., 2013): `utterance, targetValue` as published, or `question, answer`."""
    return _read(path, source, licence, _web_answers)


def read_pairs(path: Path | str, source: str = "pairs", licence: str = "own") -> Iterator[Outcome]:
    """The user's own `question, answer` rows, JSON lines or CSV; `id` where there is one."""
    return _read(path, source, licence, lambda row: fields.texts(row, "answer"))


def _read(
    path: Path | str,
    source: str,
    licence: str,
    answers: Callable[[dict[str, Any]], tuple[str, ...]],
    member: str = "",
) -> Iterator[Outcome]:
    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = fields.question(row, "question", "Question", "utterance")
        identity = fields.identity(row, source, asked, "id", "question_id", "QuestionId")
        return single(identity, source, licence, asked, answers(row))

    return read_annotated(path, annotate, member=member)


def _trivia_answers(row: dict[str, Any]) -> tuple[str, ...]:
    answer = row["Answer"] if "Answer" in row else row["answer"]
    if isinstance(answer, dict):
        lower = {key.casefold(): value for key, value in answer.items()}
        return tuple(dict.fromkeys([lower["value"], *lower["aliases"]]))
    names = fields.texts(row, "answer")
    return tuple(dict.fromkeys([plainest(names), *names]))


def plainest(names: tuple[str, ...]) -> str:
    """Of the aliases of one thing, in no order, the name whose words most of the others hold: "Helicopter"."""
    words = {name: set(normalise(name).split()) for name in names}
    return max(names, key=lambda name: sum(words[name] <= other for other in words.values()) if words[name] else 0)


def _web_answers(row: dict[str, Any]) -> tuple[str, ...]:
    if "targetValue" not in row:
        return fields.texts(row, "answer", "answers")
    found = [quoted or plain for quoted, plain in DESCRIPTION.findall(fields.text(row, "targetValue"))]
    return fields.texts({"targetValue": [re.sub(r"\\(.)", r"\1", value) for value in found]}, "targetValue")
