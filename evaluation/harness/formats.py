"""The published formats: how each one's files are read, the rule that its answers are scored by, its known versions."""

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
        """The gold plan, read once for all systems that are asked; None where there is none."""
        return read_sketch(self.gold.expression) if self.gold.expression else None


Read = Callable[[str], Iterator[BenchmarkQuestion]]


@dataclass(frozen=True)
class Format:
    """How a benchmark's files are read, the rule that its answers are scored by, the versions that are known, the last
    one first. `lists`: several gold values are all wanted, elsewhere they are aliases of one. `states`: the file says
    its version."""

    read: Read
    normaliser: str
    versions: tuple[str, ...]
    lists: bool = False
    states: bool = False


def _whole(outcomes: Iterable[Outcome]) -> Iterator[AnnotatedQuestion]:
    for outcome in outcomes:
        if isinstance(outcome, RefusedRow):
            raise DataError(outcome.reason, where=f"{outcome.file}, line {outcome.line}")
        if isinstance(outcome, AnnotatedQuestion):
            yield outcome


def _planned(name: str, path: str, plain: Iterable[Outcome]) -> Iterator[AnnotatedQuestion]:
    """Every plain question, with its gold plan where the format's own reader finds one."""
    planned = {q.id: q for q in READERS[name](path) if isinstance(q, AnnotatedQuestion)}
    yield from (planned.get(q.id, q) for q in _whole(plain))


def _kinds(path: str, source: str, field: str) -> dict[str, str]:
    """The text in `field` of each row, by the id that the readers give the row."""
    rows = (row for _, row in read_file_rows(path) if isinstance(row, dict) and row.get("question"))
    return {
        fields.make_id(row, source, fields.read_question(row), "_id", "id"): str(row.get(field, "")) for row in rows
    }


def _hotpot(path: str) -> Iterator[BenchmarkQuestion]:
    kinds = _kinds(path, "hotpotqa", "type")
    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _whole(read_hotpot(path)))


def _two_wiki(path: str) -> Iterator[BenchmarkQuestion]:
    kinds = _kinds(path, "2wiki", "type")
    plain = read_hotpot(path, "2wiki", "Apache-2.0")  # the same file format
    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _planned("2wiki", path, plain))


def _musique(path: str) -> Iterator[BenchmarkQuestion]:
    """MuSiQue-Ans; of MuSiQue-Full the answerable questions."""

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        answers = [*fields.read_texts(row, "answer"), *row.get("answer_aliases", [])]
        passages = [
            AnnotatedPassage(p["title"], p["paragraph_text"], bool(p["is_supporting"]))
            for p in row.get("paragraphs", [])
        ]
        return replace(_plain(row, "musique", answers, "complex"), passages=tuple(passages), licence="CC-BY-4.0")

    answerable = read_annotated(path, annotate, lambda row: (row,) if row.get("answerable", True) else ())
    for q in _planned("musique", path, answerable):
        yield BenchmarkQuestion(q, q.id.partition(":")[2].partition("__")[0] if "__" in q.id else "")


def _where(
    path: str, annotate: Callable[[dict[str, Any]], AnnotatedQuestion], keep: Callable[[Any], bool]
) -> Iterator[Outcome]:
    return read_annotated(path, annotate, lambda row: (row,) if keep(row) else ())


def _plain(row: dict[str, Any], source: str, answers: Sequence[str], route: str, *ids: str) -> AnnotatedQuestion:
    asked = fields.read_question(row, "question", "Question", "query")
    identity = fields.make_id(row, source, asked, *(ids or ("id", "_id")))
    return AnnotatedQuestion(identity, source, "", "", asked, route, answers=tuple(dict.fromkeys(answers)))


def _single(name: str) -> Read:
    return lambda path: (BenchmarkQuestion(q) for q in _whole(READERS[name](path)))


def _bamboogle(path: str) -> Iterator[BenchmarkQuestion]:
    """Bamboogle (Press et al. 2023): `Question, Answer`, CSV or JSON lines."""
    outcomes = read_annotated(
        path, lambda row: _plain(row, "bamboogle", fields.read_texts(row, "Answer", "answer"), "complex")
    )
    yield from (BenchmarkQuestion(q) for q in _whole(outcomes))


def _compound(path: str) -> Iterator[BenchmarkQuestion]:
    """HANRAG's compound questions: `question`, `answers` (one a part), and the parts where they are told; or annotated
    rows of this project's own (`revelator data teach`)."""

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        if "route" in row:
            return AnnotatedQuestion.from_json(row)
        answers = fields.read_texts(row, "answers", "answer")
        if len(answers) == 1:
            answers = tuple(part.strip() for part in answers[0].split(";") if part.strip())
        parts = row.get("parts") or row.get("sub_questions") or ()
        return replace(_plain(row, "compound", answers, "compound"), parts=tuple(parts))

    for q in _whole(read_annotated(path, annotate)):
        yield BenchmarkQuestion(q, f"{len(q.parts or q.answers)} parts")


def _blend(path: str) -> Iterator[BenchmarkQuestion]:
    """BlendQA (Xin et al. 2024): `question`, `answer` with `answer_aliases` where there are any; the pair of sources is
    in `type`, or in the name of the file ("kg-web_132.jsonl")."""
    stem, kinds = Path(path).name.partition("_")[0].partition(".")[0], {}

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        aliases = row.get("answer_aliases") or row.get("aliases") or []
        question = _plain(row, "blendqa", [*fields.read_texts(row, "answer", "answers"), *aliases], "complex")
        kinds[question.id] = str(row.get("type") or stem)
        return question

    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _whole(read_annotated(path, annotate)))


def _crag(path: str) -> Iterator[BenchmarkQuestion]:
    """CRAG (Yang et al. 2024): `query`, `answer`, `alt_ans`; kind is `static_or_dynamic`/`question_type`. Its pages are
    whole web pages and belong into an index, not beside the question."""
    kinds = {}

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        route = "single" if row.get("question_type") in ("simple", "simple_w_condition") else "complex"
        answers = [fields.read_text(row, "answer"), *(str(other) for other in row.get("alt_ans") or [])]
        question = _plain(row, "crag", answers, route, "interaction_id")
        kinds[question.id] = f"{row.get('static_or_dynamic', '')}/{row.get('question_type', '')}"
        return question

    yield from (BenchmarkQuestion(q, kinds[q.id]) for q in _whole(read_annotated(path, annotate)))


def _metaqa(path: str) -> Iterator[BenchmarkQuestion]:
    """MetaQA (Zhang et al. 2018) as JSON lines: `question` with its topic in brackets, `answers`, all of them wanted;
    the kind is in the name of the file ("1-hop_dev.jsonl.gz")."""
    kind = Path(path).name.partition("_")[0]

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = re.sub(r"[\[\]]", "", str(row["question"]))
        return _plain({**row, "question": asked}, "metaqa", fields.read_texts(row, "answers"), "complex")

    yield from (BenchmarkQuestion(q, kind) for q in _whole(read_annotated(path, annotate)))


def has_parentheses(question: AnnotatedQuestion) -> bool:
    return bool(question.expression) and "(" in to_letters(parse(question.expression))


def fans_out(question: AnnotatedQuestion) -> bool:
    """Whether some step has several values that a later one is asked for each: the steps outnumber the leaves."""
    return question.route == "complex" and len(question.steps) > len(leaves(parse(question.expression)))


def _without_groups(route: str) -> Callable[[AnnotatedQuestion], bool]:
    return lambda q: q.route == route and not has_parentheses(q) and not fans_out(q)


# Of a world's questions: which steps a question asks for, by the shape of its gold plan.
KINDS: dict[str, Callable[[AnnotatedQuestion], bool]] = {
    "straightforward": lambda q: q.route == "straightforward",
    "single": _without_groups("single"),
    "compound": _without_groups("compound"),
    "complex": _without_groups("complex"),
    "parentheses": lambda q: has_parentheses(q) and not fans_out(q),
    "fan-out": fans_out,
}


def _world(path: str) -> Iterator[BenchmarkQuestion]:
    for q in _whole(READERS["world"](path)):
        yield BenchmarkQuestion(q, next((kind for kind, fits in KINDS.items() if fits(q)), q.route))


FORMATS: dict[str, Format] = {
    "2wiki": Format(_two_wiki, "hotpotqa", ("1.1", "1.0")),
    "bamboogle": Format(_bamboogle, "squad", ("1",)),
    "blendqa": Format(_blend, "atomr", ("1",)),
    "compound": Format(_compound, "squad", ("1",), lists=True),
    "crag": Format(_crag, "atomr", ("5", "4", "3")),
    "hotpotqa": Format(_hotpot, "hotpotqa", ("1.1", "1")),
    "metaqa": Format(_metaqa, "squad", ("1",), lists=True),
    "musique": Format(_musique, "musique", ("1.0",)),
    "nq": Format(_single("nq"), "squad", ("open",)),
    "squad": Format(_single("squad"), "squad", ("1.1", "1.0"), states=True),
    "triviaqa": Format(_single("triviaqa"), "squad", ("1.0",), states=True),
    "world": Format(_world, "squad", ("1",), lists=True),
}
