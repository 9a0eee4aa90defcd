"""Measured rows: what is written for each question, and that a measurement which was broken off goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from data_gen.build import build
from data_gen.config import SetConfig, SourceConfig
from data_gen.questions import AnnotatedQuestion, AnnotatedStep, Evidence
from evaluation.adapters.predictions import LabelRow, PlanRow, TextRow, predict
from evaluation.adapters.targets import same_answer
from evaluation.chains.answers import answer_row, score
from evaluation.retrieval.recall import gold_titles, retrieve, titles_of
from evaluation.rows import append_rows, read_rows
from revelator.tasks import TASKS
from revelator.trace import Node, Trace, Usage
from serving.protocols import Completion
from serving.retrieval import Index, build_index

PLAN = "Who wrote Belt? * Where was {writer} born?"


class Planner:
    """A revelator whose plans are all right and whose route is always `single`; it counts what it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, task: str, prompts: Sequence[str]) -> list[Completion]:
        self.asked += len(prompts)
        if task == "translate_bnf":
            return [Completion(PLAN, {}, 20, 10) for _ in prompts]
        labels = TASKS[task].labels or ()
        if not labels:
            return [Completion("no task can read this", {}, 20, 5) for _ in prompts]
        return [Completion("single", dict.fromkeys(labels, 1 / len(labels)), 20) for _ in prompts]


def test_predictions_are_scored_row_by_row_and_not_asked_for_twice(tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    rows = [
        replace(question(), id=f"q{i}", question=f"In story {i}, where was the writer of Belt born?") for i in range(5)
    ]
    questions.write_text("".join(json.dumps(row.to_json()) + "\n" for row in rows), encoding="utf-8")
    source = SourceConfig(format="world", path=str(questions), sub_questions=0)
    build(SetConfig(name="tiny", sources=(source,), entity_coverage=0), tmp_path / "set")
    out, planner = tmp_path / "out", Planner()
    predict(tmp_path / "set", out, planner)
    plans, labels = read_rows(out / "plans.jsonl", PlanRow), read_rows(out / "labels.jsonl", LabelRow)
    assert all(row.valid and row.letters and row.leaves and row.exact for row in plans)
    routes = [row for row in labels if row.task == "route"]
    assert {(row.gold, row.predicted, row.probability) for row in routes} == {("complex", "single", 0.25)}
    texts = read_rows(out / "texts.jsonl", TextRow)
    assert len(plans) == len(routes) == 5 and {row.task for row in texts} == {"refine"}
    assert planner.asked == len(plans) + len(labels) + len(texts)
    (out / "plans.jsonl").unlink()
    predict(tmp_path / "set", out, planner)
    assert planner.asked == 2 * len(plans) + len(labels) + len(texts)
    predict(tmp_path / "set", tmp_path / "few", planner, each=2)
    assert len(read_rows(tmp_path / "few" / "plans.jsonl", PlanRow)) == 2


def test_a_line_that_a_kill_cut_short_is_dropped_and_the_file_goes_on_whole(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    row = LabelRow("a", "end", "musique", "q", "yes", "no", 0.25)
    append_rows(path, [row])
    with path.open("ab") as file:
        file.write(b'{"id": "b", "ta')
    assert read_rows(path, LabelRow) == [row]
    append_rows(path, [row])
    assert read_rows(path, LabelRow) == [row, row]


def question(source: str = "musique", answers: tuple[str, ...] = ("Lima",)) -> AnnotatedQuestion:
    steps = (
        AnnotatedStep("Who wrote Belt?", "Ana Sorel", "Belt (novel)"),
        AnnotatedStep("Where was Ana Sorel born?", "Lima"),
    )
    seen = (Evidence("Belt (novel)", "Belt is a novel by Ana Sorel.", True), Evidence("Cove", "Cove is a town.", False))
    about = (f"{source}:1", source, "CC0-1.0", "dev", "Where was the writer of Belt born?", "complex", PLAN)
    return AnnotatedQuestion(*about, steps=steps, answers=answers, passages=seen)


def test_gold_titles_are_those_of_the_steps_or_else_of_the_relevant_passages() -> None:
    assert gold_titles(question()) == ("Belt (novel)",)
    untitled = AnnotatedQuestion.from_json(question().to_json() | {"steps": []})
    assert gold_titles(untitled) == ("Belt (novel)",)


def test_retrieval_says_what_the_index_holds_and_what_each_question_finds(tmp_path: Path) -> None:
    rows = [
        {"id": "/wiki/Belt_(novel)", "title": "Belt ( novel )", "text": "Belt is a novel by Ana Sorel ."},
        {"id": "set:1", "title": "Ana Sorel", "text": "Ana Sorel was born in Lima."},
        {"id": "set:2", "title": "Cove", "text": "Cove is a town where no writer was born."},
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index([corpus], tmp_path / "index")
    index = Index.open(tmp_path / "index")
    found = retrieve(question(), index, titles_of(index), ["Who wrote Belt?", "Where was Ana Sorel born?"], depth=1)
    assert found.present == found.wikipedia == ("Belt (novel)",)
    assert found.leaves == (("Belt ( novel )",), ("Ana Sorel",))
    assert len(found.whole) == 2


def test_answers_are_scored_by_the_rule_of_their_set() -> None:
    assert score(question("2wiki", ("no",)), ["no one"]).f1 == 0.0
    assert score(question("musique", ("Lima", "City of Kings")), ["the City of Kings"]).em == 1.0
    assert score(question("world", ("Lima", "Oslo")), ["Oslo", "Lima"]).em == 1.0
    assert score(question("musique", ("Lima", "Oslo")), ["Oslo", "Lima"]).em == 0.0


def test_an_executed_question_keeps_what_was_asked_and_what_it_cost() -> None:
    leaf = Node("1", "atomic", "Where was {writer} born?", asked="Where was Ana Sorel born?", answers=["Lima"])
    usage = Usage(tokens_in=100, tokens_out=9, model_calls=4, generator_calls=2, retrievals=2)
    about = {"route": "complex", "plan": PLAN, "plan_source": "model", "usage": usage, "wall_ms": 31.0}
    row = answer_row(question(), Trace("Where?", "auto", answer="In Lima.", answers=["Lima"], nodes=[leaf], **about))
    assert (row.em, row.answer, row.asked) == (1.0, "Lima", ("Where was Ana Sorel born?",))
    assert (row.tokens_in, row.retrievals, row.wall_ms) == (100, 2, pytest.approx(31.0))


def test_another_next_question_counts_where_it_has_the_same_answer() -> None:
    def row(number: int, output: str, right: bool = False) -> TextRow:
        gold = json.dumps("Who wrote Belt?")
        return TextRow(f"q{number}", "refine", "world", f"q{number}", "?", gold, output, right, 9, 9)

    rows = [
        row(0, "Who wrote Belt?", True),
        row(1, "By whom was belt  written?"),
        row(2, "Who made Cove?"),
        row(3, "?"),
    ]
    answers = {"who wrote belt?": ("Ada",), "by whom was belt written?": ("Ada",), "who made cove?": ("Bo",)}
    assert (same_answer(rows, answers).value, same_answer(rows, answers).n) == (0.5, 4)
    assert same_answer(rows, {}).value == 0.25
