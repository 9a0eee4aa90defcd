"""The published formats: how their files are read, by which rule answers are scored, and which versions are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.sources import fields
from data_gen.sources.files import read_file_rows
from data_gen.sources.formats import READERS
from data_gen.sources.multi_hop import read_hotpot
from data_gen.sources.rows import Outcome, RefusedRow, read_annotated
from evaluation.metrics.plan_graph import Sketch, read_sketch
from revelator.errors import DataError
from revelator.plans import leaves, parse, to_letters


@dataclass(frozen=True)
class BenchmarkQuestion:
    """A question with its gold; `kind` is the benchmark's own word for it ("bridge", "3hop1", "KG-Web")."""

    gold: AnnotatedQuestion
    kind: str = ""

    @property
    def id(self) -> str:
        return self.gold.id

    @cached_property
    def plan(self) -> Sketch | None:
        """The gold plan, read once for all systems, or None."""
        return read_sketch(self.gold.expression) if self.gold.expression else None


Read = Callable[[str], Iterator[BenchmarkQuestion]]


@dataclass(frozen=True)
class Format:
    """How a benchmark's files are read, the rule by which its answers are scored, and the known versions, newest first.
    `has_list_answers`: all gold values are wanted; otherwise they are aliases of one answer. `states_version`: the
    file names its version."""

    read: Read
    normaliser: str
    versions: tuple[str, ...]
    has_list_answers: bool = False
    states_version: bool = False


def _require_all(outcomes: Iterable[Outcome]) -> Iterator[AnnotatedQuestion]:
    for outcome in outcomes:
        if isinstance(outcome, RefusedRow):
            raise DataError(outcome.reason, where=f"{outcome.file}, line {outcome.line}")
        if isinstance(outcome, AnnotatedQuestion):
            yield outcome


def _add_plans(name: str, path: str, plain: Iterable[Outcome]) -> Iterator[AnnotatedQuestion]:
    """Replaces each plain question by the one with a gold plan, if the format's reader finds a plan for it."""
    planned = {q.id: q for q in READERS[name](path) if isinstance(q, AnnotatedQuestion)}
    yield from (planned.get(q.id, q) for q in _require_all(plain))


def _read_kinds(path: str, source: str, field: str) -> dict[str, str]:
    """Reads the text in `field` of each row, by the row's id."""
    rows = (row for _, row in read_file_rows(path) if isinstance(row, dict) and row.get("question"))
    return {
        fields.make_id(row, source, fields.read_question(row), "_id", "id"): str(row.get(field, "")) for row in rows
    }


def _read_hotpot(path: str) -> Iterator[BenchmarkQuestion]:
    kinds = _read_kinds(path, "hotpotqa", "type")
    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _require_all(read_hotpot(path)))


def _read_two_wiki(path: str) -> Iterator[BenchmarkQuestion]:
    kinds = _read_kinds(path, "2wiki", "type")
    plain = read_hotpot(path, "2wiki", "Apache-2.0")  # the same file format
    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _add_plans("2wiki", path, plain))


def _read_musique(path: str) -> Iterator[BenchmarkQuestion]:
    """MuSiQue-Ans; of MuSiQue-Full the answerable questions."""

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        answers = [*fields.read_texts(row, "answer"), *row.get("answer_aliases", [])]
        passages = [
            AnnotatedPassage(p["title"], p["paragraph_text"], bool(p["is_supporting"]))
            for p in row.get("paragraphs", [])
        ]
        return replace(
            _make_question(row, "musique", answers, "complex"), passages=tuple(passages), licence="CC-BY-4.0"
        )

    answerable = read_annotated(path, annotate, lambda row: (row,) if row.get("answerable", True) else ())
    for q in _add_plans("musique", path, answerable):
        yield BenchmarkQuestion(q, q.id.partition(":")[2].partition("__")[0] if "__" in q.id else "")


def _make_question(
    row: dict[str, Any], source: str, answers: Sequence[str], route: str, *ids: str
) -> AnnotatedQuestion:
    asked = fields.read_question(row, "question", "Question", "query")
    identity = fields.make_id(row, source, asked, *(ids or ("id", "_id")))
    return AnnotatedQuestion(identity, source, "", "", asked, route, answers=tuple(dict.fromkeys(answers)))


def _make_reader(name: str) -> Read:
    return lambda path: (BenchmarkQuestion(q) for q in _require_all(READERS[name](path)))


def _read_bamboogle(path: str) -> Iterator[BenchmarkQuestion]:
    """Bamboogle (Press et al. 2023): `Question, Answer`, CSV or JSON lines."""
    outcomes = read_annotated(
        path, lambda row: _make_question(row, "bamboogle", fields.read_texts(row, "Answer", "answer"), "complex")
    )
    yield from (BenchmarkQuestion(q) for q in _require_all(outcomes))


def _read_compound(path: str) -> Iterator[BenchmarkQuestion]:
    """HANRAG's compound questions: `question`, `answers` (one for each part), and the parts if they are given; or
    annotated rows of this project (`revelator data teach`)."""

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        if "route" in row:
            return AnnotatedQuestion.from_json(row)
        answers = fields.read_texts(row, "answers", "answer")
        if len(answers) == 1:
            answers = tuple(part.strip() for part in answers[0].split(";") if part.strip())
        parts = row.get("parts") or row.get("sub_questions") or ()
        return replace(_make_question(row, "compound", answers, "compound"), parts=tuple(parts))

    for q in _require_all(read_annotated(path, annotate)):
        yield BenchmarkQuestion(q, f"{len(q.parts or q.answers)} parts")


def _read_blend(path: str) -> Iterator[BenchmarkQuestion]:
    """BlendQA (Xin et al. 2024): `question`, `answer`, perhaps `answer_aliases`. The pair of sources is in `type`, or
    in the name of the file ("kg-web_132.jsonl")."""
    stem, kinds = Path(path).name.partition("_")[0].partition(".")[0], {}

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        aliases = row.get("answer_aliases") or row.get("aliases") or []
        question = _make_question(row, "blendqa", [*fields.read_texts(row, "answer", "answers"), *aliases], "complex")
        kinds[question.id] = str(row.get("type") or stem)
        return question

    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _require_all(read_annotated(path, annotate)))


def _read_crag(path: str) -> Iterator[BenchmarkQuestion]:
    """CRAG (Yang et al. 2024): `query`, `answer`, `alt_ans`; kind is `static_or_dynamic`/`question_type`. Its web
    pages belong into an index and are not read here."""
    kinds = {}

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        route = "single" if row.get("question_type") in ("simple", "simple_w_condition") else "complex"
        answers = [fields.read_text(row, "answer"), *(str(other) for other in row.get("alt_ans") or [])]
        question = _make_question(row, "crag", answers, route, "interaction_id")
        kinds[question.id] = f"{row.get('static_or_dynamic', '')}/{row.get('question_type', '')}"
        return question

    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _require_all(read_annotated(path, annotate)))


def _read_metaqa(path: str) -> Iterator[BenchmarkQuestion]:
    """MetaQA (Zhang et al. 2018) as JSON lines: `question` with its topic in brackets, `answers`, all of them wanted;
    the kind is in the name of the file ("1-hop_dev.jsonl.gz")."""
    kind = Path(path).name.partition("_")[0]

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = re.sub(r"[\[\]]", "", str(row["question"]))
        return _make_question({**row, "question": asked}, "metaqa", fields.read_texts(row, "answers"), "complex")

    yield from (BenchmarkQuestion(q, kind) for q in _require_all(read_annotated(path, annotate)))


def has_parentheses(question: AnnotatedQuestion) -> bool:
    return bool(question.expression) and "(" in to_letters(parse(question.expression))


def fans_out(question: AnnotatedQuestion) -> bool:
    """Whether a step has several values, and a later step is asked for each: there are more steps than leaves."""
    return question.route == "complex" and len(question.steps) > len(leaves(parse(question.expression)))


def compares(question: AnnotatedQuestion) -> bool:
    """Whether the answer is the one of several things, found apart, whose date or number is the least or greatest."""
    return question.operation.startswith(("argmin", "argmax")) and not (has_parentheses(question) or fans_out(question))


def _is_plain(route: str) -> Callable[[AnnotatedQuestion], bool]:
    return lambda q: q.route == route and not (has_parentheses(q) or fans_out(q) or compares(q))


# Of a world's questions: which steps a question asks for, by the shape of its gold plan.
KINDS: dict[str, Callable[[AnnotatedQuestion], bool]] = {
    "single": _is_plain("single"),
    "compound": _is_plain("compound"),
    "complex": _is_plain("complex"),
    "comparison": compares,
    "parentheses": lambda q: has_parentheses(q) and not fans_out(q),
    "fan-out": fans_out,
}


def _read_world(path: str) -> Iterator[BenchmarkQuestion]:
    for q in _require_all(READERS["world"](path)):
        yield BenchmarkQuestion(q, next((kind for kind, fits in KINDS.items() if fits(q)), q.route))


FORMATS: dict[str, Format] = {
    "2wiki": Format(_read_two_wiki, "hotpotqa", ("1.1", "1.0")),
    "bamboogle": Format(_read_bamboogle, "squad", ("1",)),
    "blendqa": Format(_read_blend, "atomr", ("1",)),
    "compound": Format(_read_compound, "squad", ("1",), has_list_answers=True),
    "crag": Format(_read_crag, "atomr", ("5", "4", "3")),
    "hotpotqa": Format(_read_hotpot, "hotpotqa", ("1.1", "1")),
    "metaqa": Format(_read_metaqa, "squad", ("1",), has_list_answers=True),
    "musique": Format(_read_musique, "musique", ("1.0",)),
    "nq": Format(_make_reader("nq"), "squad", ("open",)),
    "squad": Format(_make_reader("squad"), "squad", ("1.1", "1.0"), states_version=True),
    "triviaqa": Format(_make_reader("triviaqa"), "squad", ("1.0",), states_version=True),
    "world": Format(_read_world, "squad", ("1",), has_list_answers=True),
}
