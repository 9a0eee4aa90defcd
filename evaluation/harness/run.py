"""Asks what a run has not asked yet, several questions at a time, and writes each down as it ends."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import Progress

from evaluation.asking import Ask, ask_each, kept, refusal
from evaluation.baselines.table import BASELINES
from evaluation.facts import code_digest, memory_gib, processor
from evaluation.harness.ablations import check_ablation
from evaluation.harness.benchmarks import Benchmark, open_benchmark
from evaluation.harness.config import BenchmarkConfig, OperatorsConfig, RankingConfig, RunConfig
from evaluation.harness.folder import QuestionRow, RowWriter, Run, begin
from evaluation.harness.formats import BenchmarkQuestion
from evaluation.harness.given_predictions import read_given
from evaluation.harness.question_scores import answer_values, gold_row, scored
from evaluation.harness.systems import Opened, check_system, describe, open_system
from evaluation.logic.ranking import cases_of, files_of, identity, rank
from evaluation.rows import sole_writer
from revelator.errors import ConfigError, RevelatorError
from revelator.trace import Trace, join_answers
from serving import pauses

COMPILES = ("auto", "compile")


def benchmark_of(config: BenchmarkConfig) -> Benchmark:
    """Raises ConfigError, ArtifactError and DataError, before anything is run."""
    ids: Sequence[str] = ()
    if config.ids:
        try:
            ids = Path(config.ids).read_text(encoding="utf-8").split()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=config.ids) from error
    return open_benchmark(
        config.format,
        config.path,
        version=config.version,
        pinned=config.sha256,
        split=config.split,
        kinds=config.kinds,
        ids=ids,
        sample=config.sample,
        name=config.name,
        dev_of=config.dev_of,
    )


def prepare(
    config: RunConfig, command: str, read: Callable[[BenchmarkConfig], Benchmark] = benchmark_of
) -> tuple[Run, Benchmark]:
    """Everything that can be wrong is looked at here: benchmark, system, index, adapter, server, predictions."""
    if config.system.ranking:
        return _prepare_ranking(config, config.system.ranking, command)
    given = bool(config.system.predictions)
    if not given:
        check_system(config)
    elif config.ablation.switched():
        raise ConfigError("predictions are made: there is nothing to switch", where="ablation")
    benchmark = read(config.benchmark)
    ids = tuple(question.id for question in benchmark.questions)
    if given:
        read_given(Path(str(config.system.predictions)), ids)
    about: dict[str, Any] = {} if given else describe(config)
    return _run(config, command, benchmark, ids, about), benchmark


def _run(config: RunConfig, command: str, benchmark: Benchmark, ids: tuple[str, ...], about: dict[str, Any]) -> Run:
    return Run(
        config=config.model_dump(mode="json"),
        command=command,
        benchmark=benchmark.to_json(),
        system={"kind": config.system.kind, "name": config.system.name},
        ablation=config.ablation.switched(),
        ids=ids,
        code=code_digest(),
        machine=machine(),
        seed=config.seed,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    )


def _prepare_ranking(config: RunConfig, ranking: RankingConfig, command: str) -> tuple[Run, Benchmark]:
    check_ablation(config.ablation, config.system.name, served=bool(config.url))
    cases, *_ = cases_of(ranking)
    benchmark = Benchmark(config.benchmark.name or "itlr", "itlr", "1", "none", False, (), files_of(ranking))
    ids = tuple(identity(place, case) for place, case in enumerate(cases))
    return _run(config, command, benchmark, ids[: config.benchmark.sample], {}), benchmark


def machine() -> str:
    return f"{processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB, {platform.system()}"


def carry_out(
    config: RunConfig, run: Run, benchmark: Benchmark, folder: Path, progress: Progress, opened: Opened | None = None
) -> None:
    """Asks every question that has no row in `folder` yet. Raises Unavailable when a service is down: what was asked
    is kept, and the same call goes on; ConfigError while another process writes in `folder`."""
    with sole_writer(folder), pauses.tuned_collector():
        done = {row.id for row in begin(folder, run)}
        todo = [question for question in benchmark.questions if question.id not in done]
        bar = progress.add_task(run.name, total=len(run.ids), completed=len(done))
        writer = RowWriter(folder)

        def write(row: QuestionRow) -> None:
            writer.append(row)
            progress.advance(bar)

        try:
            if config.system.ranking:
                for row in ranked_rows(config, config.system.ranking, [id for id in run.ids if id not in done]):
                    write(row)
            elif config.system.predictions:
                for row in given_rows(Path(config.system.predictions), todo, benchmark, run.ids):
                    write(row)
            elif todo:
                asyncio.run(_with_system(config, benchmark, todo, write, opened))
        finally:
            writer.close()


def ranked_rows(config: RunConfig, ranking: RankingConfig, todo: Collection[str]) -> Iterable[QuestionRow]:
    """The rows of the cases in `todo`; without one, no encoder is opened."""
    cases, texts, titles = cases_of(ranking)
    left = {place: case for place, case in enumerate(cases) if identity(place, case) in set(todo)}
    if left:
        yield from rank(left, texts, titles, ranking, config.ablation.operators or OperatorsConfig())


def given_rows(
    path: Path, questions: Iterable[BenchmarkQuestion], benchmark: Benchmark, ids: Sequence[str]
) -> Iterable[QuestionRow]:
    predicted = read_given(path, ids)
    for question in questions:
        row, values = gold_row(question, benchmark), predicted[question.id]
        text = join_answers(values)
        scores = answer_values(text, values, row.golds, benchmark.normaliser, is_list=benchmark.lists)
        yield replace(row, prediction=text, predictions=values, status="complete" if text else "failed", scores=scores)


async def _with_system(
    config: RunConfig, benchmark: Benchmark, todo: Sequence[BenchmarkQuestion], write: Any, opened: Opened | None
) -> None:
    async with open_system(config, opened=opened) as ask:
        await ask_all(ask, todo, benchmark, write, config.concurrency, **_scoring(config))


def _scoring(config: RunConfig) -> dict[str, Any]:
    """How traces of this system are scored."""
    name, baseline = config.system.name, bool(config.system.baseline)
    return {
        "plans": BASELINES[name].compiles if baseline else name in COMPILES,
        "sequential": baseline,
        "unasked": [task for task in ("relevance", "end", "refine") if getattr(config.ablation, task) is False],
        "keep_trace": config.traces,
    }


async def ask_all(
    ask: Ask, todo: Sequence[BenchmarkQuestion], benchmark: Benchmark, write: Any, concurrency: int, **scoring: Any
) -> None:
    """`concurrency` questions in flight; `write` is called with each row as it ends."""

    def told(question: BenchmarkQuestion, outcome: Trace | RevelatorError) -> None:
        row = gold_row(question, benchmark)
        if isinstance(outcome, RevelatorError):
            write(replace(row, status="error", error=refusal(outcome)))
        else:
            write(scored(row, question, benchmark, outcome, **scoring))

    with kept():
        await ask_each(ask, todo, lambda question: question.gold.question, told, min(concurrency, len(todo)))
