"""Questions that one step answers: Natural Questions (open), TriviaQA, WebQuestions, pairs of the user's own; SQuAD and
QED with the passage that answers; and CommonsenseQA, which needs no passage.

A passage that does not help stands beside the one that does: of SQuAD another paragraph of the same article, of QED
the passage of the row before. Neither holds an answer as words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep, DroppedError
from data_gen.sources import fields
from data_gen.sources.rows import ReadResult, read_annotated
from revelator import plans
from revelator.errors import DataError
from revelator.fingerprints import normalise

DESCRIPTION = re.compile(r'\(description "((?:[^"\\]|\\.)*)"\)|\(description ([^"()]+)\)')


def make_single(
    identity: str,
    source: str,
    licence: str,
    asked: str,
    answers: tuple[str, ...],
    passages: tuple[AnnotatedPassage, ...] = (),
    known: int = 1,
) -> AnnotatedQuestion:
    """A question that is its own plan and only step. The first `known` answers stand for all in what is known: one, of
    which the others are spellings, or the items of a list."""
    title = next((passage.title for passage in passages if passage.relevant), "")
    return AnnotatedQuestion(
        id=identity,
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="single",
        expression=plans.render(plans.Atomic(asked)),
        steps=(AnnotatedStep(asked, answers[:known], title),),
        answers=answers,
        passages=passages,
    )


def _read_trivia_answers(row: dict[str, Any]) -> tuple[str, ...]:
    answer = row["Answer"] if "Answer" in row else row["answer"]
    if isinstance(answer, dict):
        lower = {key.casefold(): value for key, value in answer.items()}
        return tuple(dict.fromkeys([lower["value"], *lower["aliases"]]))
    names = fields.read_texts(row, "answer")
    return tuple(dict.fromkeys([choose_plainest(names), *names]))


def choose_plainest(names: tuple[str, ...]) -> str:
    """Of the aliases of one thing, in no order, the name whose words most of the others hold: "Helicopter"."""
    words = {name: set(normalise(name).split()) for name in names}
    return max(names, key=lambda name: sum(words[name] <= other for other in words.values()) if words[name] else 0)


def _read_web_answers(row: dict[str, Any]) -> tuple[str, ...]:
    if "targetValue" not in row:
        return fields.read_texts(row, "answer", "answers")
    found = [quoted or plain for quoted, plain in DESCRIPTION.findall(fields.read_text(row, "targetValue"))]
    return fields.check_texts("targetValue", [re.sub(r"\\(.)", r"\1", value) for value in found])


def _make_reader(
    source: str,
    licence: str,
    read_answers: Callable[[dict[str, Any]], tuple[str, ...]] = lambda row: fields.read_texts(row, "answer"),
    member: str = "",
) -> Callable[[Path | str], Iterator[ReadResult]]:
    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = fields.read_question(row, "question", "Question", "utterance")
        identity = fields.make_id(row, source, asked, "id", "question_id", "QuestionId")
        return make_single(identity, source, licence, asked, read_answers(row))

    return lambda path: read_annotated(path, annotate, member=member)


# NQ-open (Lee et al., 2019): `question`, and `answer` with one or more texts
read_natural_questions = _make_reader("nq", "CC-BY-SA-3.0")
# TriviaQA (Joshi et al., 2017): `{"Data": [{"Question", "Answer": {"Value", …}}]}`, or `question, answer`
read_trivia = _make_reader("triviaqa", "Apache-2.0", _read_trivia_answers, member="Data")
# WebQuestions (Berant et al., 2013): `utterance, targetValue` as published, or `question, answer`
read_web_questions = _make_reader("webquestions", "CC-BY-4.0", _read_web_answers)
# the user's own `question, answer` rows, JSON lines or CSV; `id` where there is one
read_pairs = _make_reader("pairs", "own")


def read_squad(path: Path | str) -> Iterator[ReadResult]:
    """SQuAD (Rajpurkar et al., 2016 and 2018): articles with paragraphs and questions, the Hub's questions, or rows
    for reading, which call the context a passage."""

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = fields.read_question(row)
        if not row["answers"]:
            raise DroppedError("the passage does not say the answer")
        answers = fields.check_texts("answers", [answer["text"] for answer in fields.list_objects(row["answers"])])
        title, text = fields.read_text(row, "title").replace("_", " "), fields.read_text(row, "passage", "context")
        passages = _add_distractor(AnnotatedPassage(title, text, True), row.get("others", ()), answers)
        identity = fields.make_id(row, "squad", asked, "id")
        return make_single(identity, "squad", "CC-BY-SA-4.0", asked, answers, passages)

    return read_annotated(path, annotate, _list_questions, member="data")


def _list_questions(article: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each question of an article with its paragraph, and the others from the next one on."""
    if "paragraphs" not in article:
        yield article
        return
    title, contexts = article["title"], [paragraph["context"] for paragraph in article["paragraphs"]]
    for place, paragraph in enumerate(article["paragraphs"]):
        others = [
            AnnotatedPassage(title.replace("_", " "), text, False) for text in contexts[place + 1 :] + contexts[:place]
        ]
        for row in paragraph["qas"]:
            yield {**row, "title": title, "context": contexts[place], "others": others}


def read_qed(path: Path | str) -> Iterator[ReadResult]:
    """QED (Lamm et al., 2021): questions of Natural Questions, each with the passage that answers it. The answers
    of an annotator who names several are a list; else each annotator's is a spelling of one."""
    before: list[AnnotatedPassage] = []

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = fields.read_question(row, "question_text")
        spans = sorted(row["original_nq_answers"], key=len, reverse=True)
        items = fields.check_texts("original_nq_answers", [span["string"] for span in spans[0]])
        answers = fields.check_texts("original_nq_answers", [span["string"] for span in chain.from_iterable(spans)])
        passage = AnnotatedPassage(fields.read_text(row, "title_text"), fields.read_text(row, "paragraph_text"), True)
        others = [AnnotatedPassage(other.title, other.text, False) for other in before if other.title != passage.title]
        before[:] = [passage]
        identity = fields.make_id(row, "qed", asked, "example_id")
        passages = _add_distractor(passage, others, answers)
        return make_single(identity, "qed", "CC-BY-SA-3.0", asked, answers, passages, len(items))

    return read_annotated(path, annotate)


def _add_distractor(
    passage: AnnotatedPassage, others: list[AnnotatedPassage], answers: tuple[str, ...]
) -> tuple[AnnotatedPassage, ...]:
    """The passage and the first of the others that holds none of the answers."""
    said = [f" {normalise(answer)} " for answer in answers]
    other = next((o for o in others if not any(answer in f" {normalise(o.text)} " for answer in said)), None)
    return (passage, other) if other else (passage,)


def read_commonsense(path: Path | str) -> Iterator[ReadResult]:
    """Straightforward questions, without their choices; the answer is the right choice, where the key is published."""
    return read_annotated(path, _annotate_commonsense)


def _annotate_commonsense(row: dict[str, Any]) -> AnnotatedQuestion:
    inner = row["question"] if isinstance(row["question"], dict) else row
    asked = fields.read_question(inner, "stem", "question")
    choices = {choice["label"]: choice["text"] for choice in fields.list_objects(inner["choices"])}
    key = row.get("answerKey") or ""
    if key and key not in choices:
        raise DataError(f"field 'answerKey' must be one of {', '.join(choices)}, found {key!r}")
    return AnnotatedQuestion(
        id=fields.make_id(row, "commonsenseqa", asked, "id"),
        source="commonsenseqa",
        licence="MIT",
        split="",
        question=asked,
        route="straightforward",
        answers=(choices[key],) if key else (),
    )
