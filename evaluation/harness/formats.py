"""The published formats: how their files are read and by which rule answers are scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.sources import fields
from data_gen.sources.formats import READERS
from data_gen.sources.multi_hop import annotate_hotpot
from data_gen.sources.rows import ReadResult, RefusedRow, Unfold, read_annotated
from evaluation.harness.config import OwnColumns
from evaluation.metrics.plans import PlanSummary, summarise_plan
from revelator.errors import DataError, ExpressionError
from revelator.plans import list_leaves, parse, render, to_letters


@dataclass(frozen=True)
class BenchmarkQuestion:
    """A question with its gold; `kind` is the benchmark's own word for it ("bridge", "3hop1", "KG-Web"). `spellings`
    are other ways to write each value of a list, in the order of the gold answers."""

    gold: AnnotatedQuestion
    kind: str = ""
    spellings: tuple[tuple[str, ...], ...] = ()

    @property
    def id(self) -> str:
        return self.gold.id

    @cached_property
    def plan(self) -> PlanSummary | None:
        """The gold plan, read once for all systems, or None."""
        return summarise_plan(self.gold.expression) if self.gold.expression else None


Annotate = Callable[[dict[str, Any], str], BenchmarkQuestion]
QuestionReader = Callable[[str], Iterator[BenchmarkQuestion]]


@dataclass(frozen=True)
class Format:
    """How a benchmark's files are read, and the rule by which its answers are scored. `has_list_answers`: all gold
    values are wanted; otherwise they are aliases of one answer."""

    read: QuestionReader
    normaliser: str
    has_list_answers: bool = False


def _raise_for_malformed(outcomes: Iterable[ReadResult]) -> Iterator[AnnotatedQuestion]:
    """Yields the questions, skips SkippedRow, raises DataError for RefusedRow."""
    for outcome in outcomes:
        if isinstance(outcome, RefusedRow):
            raise DataError(outcome.reason, where=f"{outcome.file}, line {outcome.line}")
        if isinstance(outcome, AnnotatedQuestion):
            yield outcome


def _make_source_reader(name: str) -> QuestionReader:
    return lambda path: map(BenchmarkQuestion, _raise_for_malformed(READERS[name](path)))


def _make_row_reader(annotate: Annotate, unfold: Unfold = lambda row: (row,)) -> QuestionReader:
    """Returns a reader that hands each row of a file to `annotate`, with the file's name."""

    def read(path: str) -> Iterator[BenchmarkQuestion]:
        made: dict[str, BenchmarkQuestion] = {}

        def annotate_row(row: dict[str, Any]) -> AnnotatedQuestion:
            question = annotate(row, Path(path).name)
            made[question.id] = question
            return replace(question.gold, route=question.gold.route or "complex")

        for gold in _raise_for_malformed(read_annotated(path, annotate_row, unfold)):
            question = made[gold.id]  # a route that nobody gave is not scored
            yield replace(question, gold=replace(gold, route=question.gold.route))

    return read


def _make_plan_reader(name: str, read: QuestionReader) -> QuestionReader:
    """Returns a reader that replaces each question by the one with a gold plan, if the format has a plan for it."""

    def read_with_plans(path: str) -> Iterator[BenchmarkQuestion]:
        planned = {q.id: q for q in READERS[name](path) if isinstance(q, AnnotatedQuestion)}
        for question in read(path):
            yield BenchmarkQuestion(planned.get(question.id, question.gold), question.kind)

    return read_with_plans


def _annotate_hotpot(row: dict[str, Any], source: str, licence: str) -> BenchmarkQuestion:
    return BenchmarkQuestion(annotate_hotpot(row, source, licence), str(row.get("type", "")))


def _make_question(
    row: dict[str, Any], source: str, answers: Sequence[str], route: str = "complex", kind: str = "", **more: Any
) -> BenchmarkQuestion:
    asked = fields.read_question(row, "question", "Question", "query")
    identity = fields.make_id(row, source, asked, "id", "_id", "interaction_id")
    once = tuple(dict.fromkeys(answers))
    return BenchmarkQuestion(AnnotatedQuestion(identity, source, "", "", asked, route, answers=once, **more), kind)


def _annotate_musique(row: dict[str, Any], file: str) -> BenchmarkQuestion:
    """MuSiQue-Ans; of MuSiQue-Full the answerable questions. The kind is the start of the id ("3hop1")."""
    answers = [*fields.read_texts(row, "answer"), *row.get("answer_aliases", [])]
    passages = [
        AnnotatedPassage(p["title"], p["paragraph_text"], bool(p["is_supporting"])) for p in row.get("paragraphs", [])
    ]
    kind = row["id"].partition("__")[0] if "__" in str(row.get("id", "")) else ""
    return _make_question(row, "musique", answers, kind=kind, passages=tuple(passages))


def _annotate_bamboogle(row: dict[str, Any], file: str) -> BenchmarkQuestion:
    """Bamboogle (Press et al. 2023): `Question, Answer`, CSV or JSON lines."""
    return _make_question(row, "bamboogle", fields.read_texts(row, "Answer", "answer"))


def _annotate_compound(row: dict[str, Any], file: str) -> BenchmarkQuestion:
    """HANRAG's compound questions: `question`, `answers` (a list with one for each part), and the parts if they are
    given; or annotated rows of this project (`rows: taught` of `revelator data build`).

    Raises DataError for one text, which cannot be taken apart: an answer may hold any character that parts answers.
    """
    if "route" in row:
        gold = AnnotatedQuestion.from_json(row)
        return BenchmarkQuestion(gold, f"{len(gold.parts or gold.answers)} parts")
    given, answers = row.get("answers", row.get("answer")), fields.read_texts(row, "answers", "answer")
    if given == answers[0]:
        raise DataError(f"one text for all parts, {given!r:.60}: `answers` must be a list with an answer for each part")
    parts = tuple(row.get("parts") or row.get("sub_questions") or ())
    return _make_question(row, "compound", answers, "compound", f"{len(parts or answers)} parts", parts=parts)


def _annotate_blend(row: dict[str, Any], file: str) -> BenchmarkQuestion:
    """BlendQA (Xin et al. 2024): `question`, `answer`, perhaps `answer_aliases` and the `plan` of a world's `blend`.
    The pair of sources is in `type`, or in the name of the file ("kg-web_132.jsonl")."""
    aliases = row.get("answer_aliases") or row.get("aliases") or []
    kind = str(row.get("type") or re.split(r"[_.]", file)[0])
    answers, plan = [*fields.read_texts(row, "answer", "answers"), *aliases], str(row.get("plan") or "")
    return _make_question(row, "blendqa", answers, kind=kind, expression=plan)


def _annotate_crag(row: dict[str, Any], file: str) -> BenchmarkQuestion:
    """CRAG (Yang et al. 2024): `query`, `answer`, `alt_ans`; kind is `static_or_dynamic`/`question_type`. Its web
    pages belong into an index and are not read here."""
    route = "single" if row.get("question_type") in ("simple", "simple_w_condition") else "complex"
    answers = [fields.read_text(row, "answer"), *(str(other) for other in row.get("alt_ans") or [])]
    kind = f"{row.get('static_or_dynamic', '')}/{row.get('question_type', '')}"
    return _make_question(row, "crag", answers, route, kind)


def _annotate_metaqa(row: dict[str, Any], file: str) -> BenchmarkQuestion:
    """MetaQA (Zhang et al. 2018) as JSON lines: `question` with its topic in brackets, `answers`, all of them wanted;
    the kind is in the name of the file ("1-hop_dev.jsonl.gz")."""
    asked = re.sub(r"[\[\]]", "", str(row["question"]))
    answers = fields.read_texts(row, "answers")
    return _make_question({**row, "question": asked}, "metaqa", answers, kind=file.partition("_")[0])


PLAN_KINDS = ("single", "compound", "complex", "comparison", "parentheses", "fan-out")  # of a world's questions


def has_parentheses(question: AnnotatedQuestion) -> bool:
    return bool(question.expression) and "(" in to_letters(parse(question.expression))


def fans_out(question: AnnotatedQuestion) -> bool:
    """Whether a step has several values, and a later step is asked for each: there are more steps than leaves."""
    plan = question.expression if question.route == "complex" else ""
    return bool(plan) and len(question.steps) > len(list_leaves(parse(plan)))


def name_kind(question: AnnotatedQuestion) -> str:
    """Returns the one of `PLAN_KINDS` that the shape of the gold plan says. A "comparison" asks for the
    one of several things, found apart, whose date or number is the least or the greatest."""
    if fans_out(question):
        return "fan-out"
    if has_parentheses(question):
        return "parentheses"
    return "comparison" if question.ending.startswith(("argmin", "argmax")) else question.route


def _read_world(path: str) -> Iterator[BenchmarkQuestion]:
    for question in _raise_for_malformed(READERS["world"](path)):
        yield BenchmarkQuestion(question, name_kind(question))


def read_own_questions(path: str, columns: OwnColumns | None = None) -> Iterator[BenchmarkQuestion]:
    """Questions of one's own: CSV, TSV, JSON lines or parquet with `question` and `answer`, and perhaps `also` (other
    spellings of the answer; of several answers one for each, or nothing), `titles` (of the passages that hold the
    answer), `plan`, `route` and `kind`. Several values are a list, or one text with `|` between them; of answers all
    are wanted. An empty `answer` says that no document answers the question. Raises DataError that names the line, or
    the columns where one is missing; also for one question with two different answers."""
    names = columns or OwnColumns()
    known: dict[str, tuple[str, ...]] = {}  # answers by question

    def annotate(row: dict[str, Any], file: str) -> BenchmarkQuestion:
        if missing := [name for name in (names.question, names.answer) if name not in row]:
            there = ", ".join(map(str, row)) or "none"
            raise DataError(f"there is no column {missing[0]!r}; columns are {there} (--column question=NAME)")
        asked, answers = fields.read_question(row, names.question), _list_values(row[names.answer])
        if known.setdefault(asked, answers) != answers:
            hint = "one row for a question: `|` between several answers, other spellings in the column `also`"
            raise DataError(f"the question was asked before, with another answer: {asked!r:.80}; {hint}")
        plan, route, kind = (str(row.get(name) or "").strip() for name in (names.plan, names.route, names.kind))
        try:
            expression = render(parse(plan)) if plan else ""
        except ExpressionError as error:
            raise DataError(f"the plan cannot be read: {error.message}") from error
        passages = tuple(AnnotatedPassage(title, "", True) for title in _list_values(row.get(names.titles)))
        spellings = _list_spellings(row.get(names.also), len(answers))
        identity = fields.make_id(row, "own", asked, "id")
        gold = AnnotatedQuestion(identity, "own", "", "", asked, route, expression, answers=answers, passages=passages)
        return BenchmarkQuestion(gold, kind, spellings)

    return _make_row_reader(annotate)(path)


def _list_values(value: Any) -> tuple[str, ...]:
    """The values of a field, each once."""
    return tuple(dict.fromkeys(filter(None, _split_values(value))))


def _list_spellings(value: Any, answers: int) -> tuple[tuple[str, ...], ...]:
    """For each of the answers its other spellings. Raises DataError where it is not clear whose they are."""
    if answers == 1 or not _list_values(value):
        return (_list_values(value),)
    places = _split_values(value)
    if len(places) != answers:
        raise DataError(
            f"{len(places)} other spellings for {answers} answers: give one for each, in their order, or nothing "
            "(`|J. Roe` for `Ana Berg|Jo Roe`)"
        )
    return tuple(tuple(filter(None, [place])) for place in places)


def _split_values(value: Any) -> list[str]:
    """A list's items, or what stands between the `|` of a text."""
    if value is None:
        return []
    is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    items = [*value] if is_list else str(value).split("|")
    return ["" if item is None else " ".join(str(item).split()) for item in items]


_read_hotpot = _make_row_reader(lambda row, file: _annotate_hotpot(row, "hotpotqa", "CC-BY-SA-4.0"))
# 2WikiMultiHopQA has HotpotQA's file format.
_read_two_wiki = _make_row_reader(lambda row, file: _annotate_hotpot(row, "2wiki", "Apache-2.0"))
_read_musique = _make_row_reader(_annotate_musique, lambda row: (row,) if row.get("answerable", True) else ())

FORMATS: dict[str, Format] = {
    "2wiki": Format(_make_plan_reader("2wiki", _read_two_wiki), "hotpotqa"),
    "bamboogle": Format(_make_row_reader(_annotate_bamboogle), "squad"),
    "blendqa": Format(_make_row_reader(_annotate_blend), "atomr"),
    "compound": Format(_make_row_reader(_annotate_compound), "squad", has_list_answers=True),
    "crag": Format(_make_row_reader(_annotate_crag), "atomr"),
    "hotpotqa": Format(_read_hotpot, "hotpotqa"),
    "metaqa": Format(_make_row_reader(_annotate_metaqa), "squad", has_list_answers=True),
    "musique": Format(_make_plan_reader("musique", _read_musique), "musique"),
    "nq": Format(_make_source_reader("nq"), "squad"),
    "own": Format(read_own_questions, "squad", has_list_answers=True),
    "squad": Format(_make_source_reader("squad"), "squad"),
    "triviaqa": Format(_make_source_reader("triviaqa"), "squad"),
    "world": Format(_read_world, "squad", has_list_answers=True),
}
