"""From a trace to a row: rounds, costs, answers and plan scores as worked by hand; figures and groups of many rows, and
what a floor would refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import pytest

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from evaluation.harness.benchmarks import Benchmark
from evaluation.harness.folder import Cost, QuestionRow
from evaluation.harness.formats import FORMATS, BenchmarkQuestion
from evaluation.harness.question_scores import (
    count_rounds,
    find_gold_titles,
    score_answers,
    score_plan,
    score_trace,
    start_row,
)
from evaluation.harness.run_metrics import measure_coverage, measure_rows
from evaluation.metrics.bootstrap import bootstrap
from evaluation.metrics.plans import summarise_plan
from revelator.limits import Strategy
from revelator.trace import Trace, join_answers
from tests.serving.executor.world import Toy

PLAN = "Who wrote Belt? * Where was {writer} born?"
STEPS = (
    AnnotatedStep("Who wrote Belt?", ("Ana",), "title 1"),
    AnnotatedStep("Where was Ana born?", ("Lima",), "title 9"),
)
GOLD = AnnotatedQuestion(
    "q", "own", "", "", "Where was the writer of Belt born?", "complex", PLAN, steps=STEPS, answers=("Lima",)
)
ASKED = BenchmarkQuestion(replace(GOLD, entities=("Belt",)), "2hop")
BENCHMARK = Benchmark("own", "world", "hotpotqa", True, (ASKED,), {})


async def answered(plan: str | None = None, **said: Any) -> Trace:
    toy = Toy({"Who wrote Belt?": ["Ana"], "Where was Ana born?": ["Lima"]}, {"route": "complex", **said})
    if plan is None:
        return await toy.executor(documents=2, steps=4).run(GOLD.question)
    return await toy.executor(documents=2).run(GOLD.question, plan=plan)


def row(trace: Trace, **how: Any) -> QuestionRow:
    return score_trace(start_row(ASKED, BENCHMARK), ASKED, BENCHMARK, trace, **how)


@pytest.mark.parametrize(("outcome", "refused"), [("unanswered", 1.0), ("failed", 0.0)])
def test_a_service_that_failed_has_refused_nothing(outcome: Literal["unanswered", "failed"], refused: float) -> None:
    asked = BenchmarkQuestion(replace(GOLD, answers=()))
    found = score_trace(start_row(asked, BENCHMARK), asked, BENCHMARK, Trace(GOLD.question, "auto", outcome=outcome))
    assert found.scores["refused"] == refused and "em" not in found.scores
    assert measure_rows([found])["outcomes"]["rightly_refused"] == refused


async def test_a_compiled_question_is_scored_whole() -> None:
    found = row(await answered(translate_bnf=PLAN))
    assert (found.hops, found.depth, found.gold_titles, found.kind) == (2, 2, ("title 1", "title 9"), "2hop")
    assert found.shape and found.plan == found.gold_plan and found.prediction == "Lima"
    assert found.scores == {
        **dict.fromkeys(("em", "acc", "f1", "route", "valid", "letters"), 1.0),
        **dict.fromkeys(("recall", "recall@2", "recall@5", "recall@10"), 0.5),
        "ndcg@10": pytest.approx(1 / (1 + 1 / math.log2(3))),
    }
    assert found.retrieved == ("title 1", "title 2")
    assert found.cost.model_calls == {"route": 1, "translate_bnf": 1, "relevance": 4}
    assert (found.cost.steps, found.cost.retrievals, found.cost.generator_calls) == (2, 2, 2)


@pytest.mark.parametrize(("strategy", "task"), [("logic", "translate_logic"), ("atomic", "translate_art")])
async def test_a_plan_that_could_not_be_written_costs_its_own_task(strategy: Strategy, task: str) -> None:
    toy = Toy({GOLD.question: ["Lima"]}, {task: "(", "translate_bnf": PLAN})
    trace = await toy.executor(documents=2).run(GOLD.question, strategy=strategy)
    assert row(trace).cost.model_calls[task] == 4, "one call at each temperature"


async def test_parts_at_the_same_time_are_one_round() -> None:
    assert count_rounds(await answered("Who wrote Belt? + Where was Ana born?")) == 1
    assert count_rounds(await answered(f"{PLAN} + Who wrote Belt?")) == 2
    assert count_rounds(await answered("Who wrote Belt? + Who wrote Belt?")) == 1
    fan = Toy({"Who?": ["A", "B"], "Where was A born?": ["x"], "Where was B born?": ["y"]})
    trace = await fan.executor().run("q", plan="Who? * Where was {one} born?")
    assert (count_rounds(trace), trace.usage.retrievals) == (2, 3)
    assert count_rounds(trace, sequential=True) == 3


async def test_a_loop_has_no_plan_of_the_models_own() -> None:
    trace = await answered(
        translate_bnf="(", refine=["Who wrote Belt?", "Where was Ana born?", "?"], end=["yes", "no", "no"]
    )
    found = row(trace)
    assert found.scores["valid"] == found.scores["letters"] == 0, "no plan of the model's own could be run"
    assert found.cost.steps == 1


async def test_what_an_ablation_answered_costs_nothing_and_a_system_without_plans_has_no_plan_scores() -> None:
    found = row(await answered(translate_bnf=PLAN), switched_off=["relevance"], compiles_plans=False)
    assert "relevance" not in found.cost.model_calls and "valid" not in found.scores


def test_a_plan_that_is_not_the_models_own_is_no_valid_one() -> None:
    gold = summarise_plan(PLAN)
    assert score_plan(PLAN, gold, own=False)["valid"] == 0
    other = score_plan("Who wrote Belt? + Where was Ana born?", gold, own=True)
    assert other == {"valid": 1.0, "letters": 0.0}


def rows(count: int) -> list[QuestionRow]:
    made = [
        QuestionRow(
            str(n),
            "own",
            "?",
            ("x",),
            status="answered",
            gold_route="single" if n % 2 else "complex",
            route="single",
            hops=1 + n % 2,
            scores={"em": float(n % 4 == 1), "f1": 0.5},
            cost=Cost(tokens_in=10, model_calls={"route": 1}, steps=n % 2),
        )
        for n in range(count)
    ]
    return [*made, QuestionRow("bad", "own", "?", ("x",), status="error", error="DeadlineExceeded: late")]


def test_every_figure_has_n_and_its_interval() -> None:
    found = measure_rows(rows(40))
    em = bootstrap([*([0, 1, 0, 0] * 10), 0])
    assert found["figures"]["em"] == {"n": 41, "value": em.mean, "low": em.low, "high": em.high}
    assert found["figures"]["tokens_in"] == {"n": 40, "value": 10.0, "low": 10.0, "high": 10.0}, "of those not refused"
    assert found["figures"]["error"]["value"] == pytest.approx(1 / 41)
    assert found["confusion"] == {"complex": {"single": 20}, "single": {"single": 20}}
    assert found["groups"]["route"]["complex"]["em"]["value"] == 0
    assert found["groups"]["route"]["single"]["em"]["n"] == 20 and found["groups"]["shape"] == {}
    assert found["errors"] == {"DeadlineExceeded: late": 1}
    for group in (found["figures"], *found["groups"]["hops"].values()):
        assert all(figure["low"] <= figure["value"] <= figure["high"] for figure in group.values())


def test_a_refusal_is_right_where_there_is_no_answer_and_counts_in_no_score_of_answers() -> None:
    def judged(id: str, golds: tuple[str, ...], said: tuple[str, ...], status: str = "answered") -> QuestionRow:
        row = QuestionRow(id, "own", "?", golds, predictions=said, status=status)
        if status == "error":
            return row
        return replace(row, scores={"em": float(said == golds)} if golds else {"refused": float(not said)})

    found = measure_rows(
        [
            judged("1", ("x",), ("x",)),
            judged("2", ("x",), ("y",)),
            judged("3", ("x",), ()),
            judged("4", (), ()),
            judged("5", (), ("y",)),
            judged("6", (), (), "error"),
        ]
    )
    assert found["outcomes"] == {
        "right": 1,
        "wrong": 1,
        "rightly_refused": 1,
        "wrongly_refused": 1,
        "answered_without": 1,
        "lost": 1,
    }
    values = {
        name: (found["figures"][name]["n"], found["figures"][name]["value"]) for name in ("em", "given", "refused")
    }
    assert values == {
        "em": (3, pytest.approx(1 / 3)),
        "given": (3, pytest.approx(2 / 3)),
        "refused": (3, pytest.approx(1 / 3)),
    }


def question() -> AnnotatedQuestion:
    steps = (
        AnnotatedStep("Who wrote Belt?", ("Ana Sorel",), "Belt (novel)"),
        AnnotatedStep("Where was Ana Sorel born?", ("Lima",)),
    )
    seen = (
        AnnotatedPassage("Belt (novel)", "Belt is a novel by Ana Sorel.", True),
        AnnotatedPassage("Cove", "Cove is a town.", False),
    )
    about = ("musique:1", "musique", "CC0-1.0", "dev", "Where was the writer of Belt born?", "complex", PLAN)
    return AnnotatedQuestion(*about, steps=steps, answers=("Lima",), passages=seen)


def test_gold_titles_are_those_of_the_steps_or_else_of_the_relevant_passages() -> None:
    assert find_gold_titles(question()) == ("Belt (novel)",)
    untitled = AnnotatedQuestion.from_json(question().to_json() | {"steps": []})
    assert find_gold_titles(untitled) == ("Belt (novel)",)


def score(name: str, golds: tuple[str, ...], said: list[str]) -> dict[str, float]:
    how = FORMATS[name]
    return score_answers(join_answers(said), said, golds, how.normaliser, is_list=how.has_list_answers)


def test_answers_are_scored_by_the_rule_of_their_set() -> None:
    assert score("2wiki", ("no",), ["no one"])["f1"] == 0.0
    assert score("musique", ("Lima", "City of Kings"), ["the City of Kings"])["em"] == 1.0
    assert score("world", ("Lima", "Oslo"), ["Oslo", "Lima"])["em"] == 1.0
    assert score("musique", ("Lima", "Oslo"), ["Oslo", "Lima"])["em"] == 0.0


def test_a_higher_floor_keeps_fewer_answers_and_more_of_them_are_right() -> None:
    def judge(number: int, em: float, probability: float | None, predictions: tuple[str, ...] = ("x",)) -> QuestionRow:
        scores = {"em": em}
        return QuestionRow(f"{number}", "b", "q", ("x",), "x", predictions, scores=scores, probability=probability)

    judged = [judge(1, 1, 0.95), judge(2, 1, 0.4), judge(3, 0, 0.03), judge(4, 0, 0.9, predictions=())]
    curve = {one["floor"]: (one["coverage"], one["accuracy"]) for one in measure_coverage(judged, "answer_floor")}
    assert curve[0.0] == (0.75, 2 / 3) and curve[0.05] == (0.5, 1.0) and curve[0.5] == (0.25, 1.0)
    assert measure_coverage(judged, "relevance_floor") == []  # nothing was judged
    assert measure_coverage(judged, "answer_floor")[-1]["kept"] == 0.5
    judged.append(judge(5, 1, None))
    assert measure_coverage(judged, "answer_floor")[-1]["coverage"] == 0.4  # no floor refuses what has no probability
