"""Asks the open questions of a run, several at a time, and writes each row when its question ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress

from evaluation.baselines.methods import BASELINES
from evaluation.harness.ablations import check_ablation
from evaluation.harness.benchmarks import CLOSED, Benchmark, build_closed_index, open_benchmark, read_predictions
from evaluation.harness.config import BenchmarkConfig, OperatorsConfig, RankingConfig, RunConfig
from evaluation.harness.folder import QuestionRow, Run, append_question, begin_run, describe_machine
from evaluation.harness.formats import BenchmarkQuestion
from evaluation.harness.question_scores import score_answers, score_trace, start_row
from evaluation.harness.ranking import make_world_cases, name_case, rank
from evaluation.harness.systems import Ask, SharedModels, check_system, describe_system, needs_index, open_system
from evaluation.rows import lock_folder
from revelator.errors import ConfigError, RevelatorError, Unavailable
from revelator.trace import Trace, join_answers
from serving import pauses

Question = TypeVar("Question")
COMPILES = ("auto", "compile")


def prepare_run(
    config: RunConfig, command: str, read: Callable[[BenchmarkConfig], Benchmark] = open_benchmark
) -> tuple[RunConfig, Run, Benchmark]:
    """Checks everything that can be wrong (benchmark, system, index, adapter, server, predictions) and describes the
    run. Builds a closed index; the configuration that is returned names it."""
    if config.system.ranking:
        return config, *_prepare_ranking(config, config.system.ranking, command)
    given = bool(config.system.predictions)
    if not given:
        check_system(config)
    elif config.ablation.list_switches():
        raise ConfigError("predictions are made: there is nothing to switch", where="ablation")
    benchmark = read(config.benchmark)
    ids = tuple(question.id for question in benchmark.questions)
    if given:
        read_predictions(Path(str(config.system.predictions)), ids)
    elif config.index == CLOSED and needs_index(config):
        config = config.model_copy(update={"index": str(build_closed_index(benchmark.pool, Path(config.home)))})
    about: dict[str, Any] = {} if given else describe_system(config)
    return config, _describe_run(config, command, benchmark, ids, about), benchmark


def _describe_run(
    config: RunConfig, command: str, benchmark: Benchmark, ids: tuple[str, ...], about: dict[str, Any]
) -> Run:
    machine = describe_machine()
    return Run(
        config=config.model_dump(mode="json"),
        command=command,
        benchmark=benchmark.to_json(),
        system={"kind": config.system.kind, "name": config.system.name},
        ablation=config.ablation.list_switches(),
        ids=ids,
        code=machine["code"],
        machine=machine["machine"],
        seed=config.seed,
        started=machine["started"],
        **about,
    )


def _prepare_ranking(config: RunConfig, ranking: RankingConfig, command: str) -> tuple[Run, Benchmark]:
    check_ablation(config.ablation, config.system.name, served=bool(config.url))
    cases = make_world_cases(ranking.per_template, ranking.seed).cases
    benchmark = Benchmark(config.benchmark.name or "itlr", "itlr", "none", False, (), {})
    ids = tuple(name_case(place, case) for place, case in enumerate(cases))
    return _describe_run(config, command, benchmark, ids[: config.benchmark.sample], {}), benchmark


def run_questions(
    config: RunConfig,
    run: Run,
    benchmark: Benchmark,
    folder: Path,
    progress: Progress,
    shared: SharedModels | None = None,
) -> None:
    """Asks every question that has no row in `folder` yet. Raises Unavailable when a service is down: the rows so far
    are kept, and the same call continues. Raises ConfigError while another process writes into `folder`."""
    with lock_folder(folder), pauses.tuned_collector():
        done = {row.id for row in begin_run(folder, run)}
        todo = [question for question in benchmark.questions if question.id not in done]
        bar = progress.add_task(run.name, total=len(run.ids), completed=len(done))

        def write(row: QuestionRow) -> None:
            append_question(folder, row)
            progress.advance(bar)

        if config.system.ranking:
            for row in rank_open_cases(config, config.system.ranking, set(run.ids) - done):
                write(row)
        elif config.system.predictions:
            for row in score_predictions(Path(config.system.predictions), todo, benchmark, run.ids):
                write(row)
        elif todo:
            asyncio.run(_open_and_ask(config, benchmark, todo, write, shared))


def rank_open_cases(config: RunConfig, ranking: RankingConfig, todo: set[str]) -> Iterable[QuestionRow]:
    """Ranks the cases in `todo`. Loads no encoder when there are none."""
    made = make_world_cases(ranking.per_template, ranking.seed)
    left = {place: case for place, case in enumerate(made.cases) if name_case(place, case) in todo}
    if left:
        yield from rank(left, made.texts, ranking, config.ablation.operators or OperatorsConfig())


def score_predictions(
    path: Path, questions: Iterable[BenchmarkQuestion], benchmark: Benchmark, ids: Sequence[str]
) -> Iterable[QuestionRow]:
    predicted = read_predictions(path, ids)
    for question in questions:
        row, values = start_row(question, benchmark), predicted[question.id]
        text = join_answers(values)
        scores = score_answers(text, values, row.golds, benchmark.normaliser, is_list=benchmark.has_list_answers)
        status = "answered" if text else "unanswered"
        yield replace(row, prediction=text, predictions=values, status=status, scores=scores)


async def _open_and_ask(
    config: RunConfig,
    benchmark: Benchmark,
    todo: Sequence[BenchmarkQuestion],
    write: Callable[[QuestionRow], None],
    shared: SharedModels | None,
) -> None:
    """Asks the questions, `concurrency` at a time. Scores each as soon as it ends, and calls `write` with its row."""
    name, baseline = config.system.name, bool(config.system.baseline)
    scoring: dict[str, Any] = {
        "plans": BASELINES[name].compiles if baseline else name in COMPILES,
        "sequential": baseline,
        "switched_off": [task for task in ("relevance", "end", "refine") if getattr(config.ablation, task) is False],
        "keep_trace": config.traces,
    }

    def report(question: BenchmarkQuestion, outcome: Trace | RevelatorError) -> None:
        row = start_row(question, benchmark)
        if isinstance(outcome, RevelatorError):
            write(replace(row, status="error", error=f"{type(outcome).__name__}: {outcome.message}"))
        else:
            write(score_trace(row, question, benchmark, outcome, **scoring))

    golds = {question.gold.question: question.gold for question in todo}
    try:
        async with open_system(config, shared, golds) as ask:
            await ask_each(ask, todo, lambda question: question.gold.question, report, config.concurrency)
    except Unavailable as error:
        hint = f"{error.hint or 'mend it'}; what was asked is kept, and the same command goes on"
        raise Unavailable(error.message, where=error.where, hint=hint) from error


async def ask_each(
    ask: Ask,
    questions: Iterable[Question],
    text: Callable[[Question], str],
    report: Callable[[Question, Trace | RevelatorError], None],
    concurrency: int,
) -> None:
    """Asks the questions, `concurrency` at a time. Calls `report` with each question and its trace, or the error that
    refused it. Raises Unavailable when a service is down; no question is reported after that."""
    queue = iter(questions)

    async def work() -> None:
        for question in queue:
            outcome: Trace | RevelatorError
            try:
                outcome = await ask(text(question))
            except Unavailable:  # not this question's fault: it stops here
                raise
            except RevelatorError as error:
                outcome = error
            report(question, outcome)

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
