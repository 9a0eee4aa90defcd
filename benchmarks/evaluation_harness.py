"""What evaluation costs beside what it evaluates.

    python benchmarks/evaluation_harness.py [--rows 100000] [--questions 300]

Metrics: answer scores by one rule, plan scores and retrieval scores of so many predictions, then all columns and groups
of a run's metrics with confusion and calibration, without the bootstrap; processor time of one process. The limit is
10 s for 100,000 predictions. Gold plans are read once for all systems that a benchmark is put to, and stand apart.

Harness: the same questions through the same executor over services that answer at once, alone and with everything that
`revelator evaluate` adds (gold, scores, row, fsync); the difference a question. The limit is 2 ms.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from fixed import LIMITS, Fixed

from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from evaluation.harness.benchmarks import Benchmark
from evaluation.harness.folder import Cost, Label, QuestionRow, RowWriter
from evaluation.harness.formats import BenchmarkQuestion
from evaluation.harness.question_scores import plan_values
from evaluation.harness.run import ask_all
from evaluation.harness.run_metrics import measured
from evaluation.measures.bootstrap import Interval
from evaluation.measures.calibration import calibration_error
from evaluation.measures.metrics import ANSWER_RULES, answer_score, title_scores
from evaluation.measures.plan_graph import sketch
from serving import collector
from serving.executor import Executor

PLAN = "Which work followed {}? * Who wrote {{sequel}}? * Where was {{writer}} born?"
WORDS = ["the", "Lima", "Oslo", "Rome", "Harrow", "Quill", "river", "1912", "of", "Comet", "north-east", "Sir", "Ana"]
METRICS_SECONDS, HARNESS_MS = 10.0, 2.0


def timed(name: str, count: int, work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    seconds = time.process_time() - began
    print(f"{name:58}{seconds:8.2f} s{seconds / count * 1e6:10.1f} µs each", flush=True)
    return seconds


def drawn(rows: int) -> list[QuestionRow]:
    chance = random.Random(0)
    labels = (Label("route", "complex", "single", 0.7),)

    def text() -> str:
        return " ".join(chance.choices(WORDS, k=3))

    titles = [f"Title {n}" for n in range(200)]
    return [
        QuestionRow(
            str(n),
            "drawn",
            f"Question {n}?",
            (text(), text()),
            text(),
            status="complete",
            gold_route=chance.choice(("single", "complex")),
            route="complex",
            hops=chance.randint(1, 4),
            gold_titles=tuple(chance.sample(titles, 2)),
            retrieved=tuple(chance.sample(titles, 10)),
            labels=labels,
            cost=Cost(100, 20, 1, {"route": 1}, 2, 2, 0.5, 0.4),
        )
        for n in range(rows)
    ]


def metrics(rows: int) -> None:
    drawn_rows, asked = drawn(rows), [question(n) for n in range(rows)]
    plans = [one.gold.expression.replace("followed", "came after") for one in asked]
    chance = random.Random(1)
    sure = [chance.random() for _ in drawn_rows]
    names, scores = ["Corridor 35"], list[dict[str, float]]()

    def answers(rule: str) -> None:
        for row in drawn_rows:
            answer_score(row.prediction, row.golds, rule)

    def titles() -> None:
        for row in drawn_rows:
            title_scores(row.retrieved, row.gold_titles, (2, 5, 10))

    def gold_plans() -> None:
        for one in asked:
            assert one.plan

    def plan_scores() -> None:
        for plan, one in zip(plans, asked, strict=True):
            plan_values(plan, one.plan, names, own=True)

    def all_scores() -> None:
        for row, plan, one in zip(drawn_rows, plans, asked, strict=True):
            answer = vars(answer_score(row.prediction, row.golds, "hotpotqa"))
            found = title_scores(row.retrieved, row.gold_titles, (2, 5, 10))
            scores.append({**answer, **found, **plan_values(plan, one.plan, names, own=True)})

    collector.settle()
    print(f"metrics of {rows:,} predictions, processor time; the collector is set as an evaluation sets it")
    reading = timed("  gold plans of 3 leaves, read once a benchmark", rows, gold_plans)
    sketch.cache_clear()
    spent = timed("  every score of a question, each plan new", rows, all_scores)
    whole = [replace(row, scores=found) for row, found in zip(drawn_rows, scores, strict=True)]
    spent += timed("  all columns, groups, confusion, calibration", rows, lambda: measured(whole, plain, resamples=1))
    verdict = "within" if spent <= METRICS_SECONDS * rows / 100_000 else "ABOVE"
    print(f"  all metrics together: {spent:.2f} s, {verdict} the limit of {METRICS_SECONDS:g} s for 100,000", end="")
    print(f" ({spent + reading:.2f} s with the reading of the gold plans)")
    print("  one by one:")
    for rule in ANSWER_RULES:
        timed(f"    EM, Acc, F1 over two aliases by {rule}", rows, partial(answers, rule))
    timed("    recall@2, 5, 10 and nDCG@10 of ten titles", rows, titles)
    timed("    calibration error", rows, lambda: calibration_error(sure, [p > 0.5 for p in sure]))
    sketch.cache_clear()
    timed("    plan scores, each plan new", rows, plan_scores)
    few = max(1, rows // 50)
    del plans[few:], asked[few:]
    plan_scores()
    timed(f"    plan scores, plans that another switch wrote ({few:,})", few, plan_scores)


def plain(values: Sequence[float]) -> Interval:
    return Interval(float(values[0]), 0.0, 0.0, len(values))


def question(number: int) -> BenchmarkQuestion:
    plan = PLAN.format(f"Corridor {number}")
    steps = tuple(AnnotatedStep(f"step {n}", "value", f"Title {n}") for n in range(3))
    asked, answers = f"Which {number}?", ("value", "other")
    gold = AnnotatedQuestion(f"q{number}", "drawn", "", "", asked, "complex", plan, steps=steps, answers=answers)
    return BenchmarkQuestion(gold)


async def harness(count: int, folder: Path) -> tuple[float, float, float]:
    """Milliseconds a question: the executor alone, wall and processor time that the harness adds."""
    services = Fixed(0.0, 5)
    executor = Executor(services, services, services, LIMITS)
    questions = tuple(question(n) for n in range(count))
    benchmark = Benchmark("drawn", "nq", "1", "squad", False, questions, {})
    plan = PLAN.format("Corridor 35")

    async def ask(text: str):
        return await executor.run(text, plan=plan, strategy="compound")

    began, work = time.perf_counter(), time.process_time()
    for one in questions:
        await ask(one.gold.question)
    alone, worked = time.perf_counter() - began, time.process_time() - work
    writer = RowWriter(folder)
    began, work = time.perf_counter(), time.process_time()
    await ask_all(ask, questions, benchmark, writer.append, 1)
    both, both_worked = time.perf_counter() - began, time.process_time() - work
    writer.close()
    (folder / "questions.jsonl").unlink()
    return alone / count * 1000, (both - alone) / count * 1000, (both_worked - worked) / count * 1000


@click.command()
@click.option("--rows", default=100_000, show_default=True)
@click.option("--questions", default=300, show_default=True)
@click.option("--repeats", default=5, show_default=True)
def main(rows: int, questions: int, repeats: int) -> None:
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}\n")
    metrics(rows)
    with tempfile.TemporaryDirectory() as folder:
        found = [asyncio.run(harness(questions, Path(folder))) for _ in range(repeats)]
    added = [wall for _, wall, _ in found]
    print(f"\nharness over {questions} questions of 3 leaves with 5 passages each, {repeats} repeats")
    print(f"  the executor alone {statistics.median(alone for alone, _, _ in found):.2f} ms a question")
    middle = statistics.median(added)
    print(f"  the harness adds {middle:.2f} ms a question (best {min(added):.2f}, worst {max(added):.2f})")
    print(f"  of it processor time {statistics.median(work for _, _, work in found):.2f} ms")
    print(f"  {'within' if middle <= HARNESS_MS else 'ABOVE'} the limit of {HARNESS_MS:g} ms")


if __name__ == "__main__":
    main()
