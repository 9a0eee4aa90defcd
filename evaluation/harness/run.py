"""Asks the pending questions of a run, several at a time, and writes each row when its question ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.progress import Progress

from data_gen.questions import AnnotatedQuestion
from evaluation.baselines.methods import BASELINES
from evaluation.harness.ablations import check_ablation, has_gold
from evaluation.harness.benchmarks import (
    CLOSED_INDEX_KINDS,
    Benchmark,
    build_closed_index,
    open_benchmark,
    read_predictions,
)
from evaluation.harness.config import GOLD, BenchmarkConfig, RankingConfig, RunConfig
from evaluation.harness.corpus_cases import (
    judge_cases,
    make_corpus_cases,
    read_beir_cases,
    reason_about_cases,
    translate_cases,
)
from evaluation.harness.folder import QUESTIONS, QuestionRow, Run, begin_run, describe_machine
from evaluation.harness.formats import BenchmarkQuestion
from evaluation.harness.question_scores import score_prediction, score_trace, start_row
from evaluation.harness.ranking import Case, LabelledCases, rank
from evaluation.harness.system_needs import check_system, needs_index, needs_revelator, needs_translation
from evaluation.harness.system_versions import describe_planner, describe_system, name_generator
from evaluation.harness.systems import Ask, SharedModels, open_generator, open_revelator, open_system
from evaluation.harness.trained_models import list_compared_models, list_models
from evaluation.rows import append_rows, lock_folder
from evaluation.seen import TrainedModel, find_seen, find_seen_question, leave_out_seen, list_unknown
from revelator.cluster import Engine, work_here
from revelator.errors import ConfigError, DataError, RevelatorError, ServingError, Unavailable
from revelator.files import sha256_file
from revelator.trace import Trace
from serving import latency
from serving.protocols import NoModel
from serving.retrieval.logical_search import Operators

COMPILES = ("auto", "compile")
SHARD = 4  # questions of a shard, for each that a worker asks at a time
TEST = "test"  # the split of a data set in BEIR's form, unless another is named


def prepare_run(
    config: RunConfig,
    command: str,
    compared: Sequence[RunConfig] = (),
    read: Callable[[BenchmarkConfig], Benchmark] | None = None,
) -> tuple[RunConfig, Run, Benchmark]:
    """Checks everything that can be wrong (benchmark, system, index, adapter, server, predictions) and describes the
    run. Builds the closed index if there is none, also for `--check`; the configuration that is returned names it.

    A benchmark that is `unseen` leaves out what the models of any of the `compared` runs have seen. A bound, and
    a run over gold passages, is asked the questions that have the gold that it is given."""
    compared = compared or [config]
    if config.system.ranking:
        return config, *_prepare_ranking(config, config.system.ranking, command, compared)
    given = bool(config.system.predictions)
    if not given:
        check_system(config)
    elif config.ablation.list_switches():
        raise ConfigError("predictions are made: there is nothing to switch", where="ablation")
    benchmark = read(config.benchmark) if read else open_benchmark(config.benchmark, compared)
    if config.ablation.route == "oracle" and not all(question.gold.route for question in benchmark.questions):
        raise ConfigError(f"{benchmark.name} does not say the route of each question", where="ablation.route")
    if config.system.bound:
        benchmark = _keep_gold(benchmark, config.system.bound)
    if config.index == GOLD:
        benchmark = _keep_gold(benchmark, "gold-passages", "index: gold")
    ids = tuple(question.id for question in benchmark.questions)
    if given:
        read_predictions(Path(str(config.system.predictions)), ids)
    elif (kind := CLOSED_INDEX_KINDS.get(config.index)) and needs_index(config):
        index = build_closed_index(benchmark.all_questions, Path(config.home), kind)
        config = config.model_copy(update={"index": str(index)})
    about: dict[str, Any] = {} if given else describe_system(config)
    models = list_models(config)
    seen = {question.id: find_seen_question(models, question.gold) for question in benchmark.questions}
    benchmark = replace(benchmark, seen=seen)
    return config, _describe_run(config, command, benchmark, about, models), benchmark


def _keep_gold(benchmark: Benchmark, bound: str, where: str = "system.bound") -> Benchmark:
    questions = tuple(question for question in benchmark.questions if has_gold(bound, question.gold))
    if not questions:
        raise DataError(f"no question of {benchmark.name} has what {bound} is given", where=where)
    without = benchmark.without_gold + len(benchmark.questions) - len(questions)
    return replace(benchmark, questions=questions, without_gold=without)


def _describe_run(
    config: RunConfig, command: str, benchmark: Benchmark, about: dict[str, Any], models: Sequence[TrainedModel]
) -> Run:
    return Run(
        config=config.model_dump(mode="json"),
        command=command,
        benchmark=benchmark.to_json(),
        system={"kind": config.system.kind, "name": config.system.name},
        ablation=config.ablation.list_switches(),
        ids=tuple(benchmark.seen),
        seed=config.seed,
        fingerprints={name: digest for model in models for name, digest in model.fingerprints.digests.items()},
        unknown=list_unknown(models),
        **describe_machine(),
        **about,
    )


def _prepare_ranking(
    config: RunConfig, ranking: RankingConfig, command: str, compared: Sequence[RunConfig]
) -> tuple[Run, Benchmark]:
    check_ablation(config.ablation, config.system.name, served=bool(config.url))
    about = config.benchmark
    cases, left_out = load_cases(config, ranking).cases, None
    if about.unseen:
        known = list_compared_models(compared)
        cases, left_out = leave_out_seen(cases, [find_seen(known, [case.question]) for case in cases], known)
    models = list_models(config)
    seen = {case.id: find_seen(models, [case.question]) for case in cases[: about.sample]}
    files = {str(path): sha256_file(path) for path in _list_files(about)}
    named = about.name or about.format, about.format, "none", False
    benchmark = Benchmark(*named, (), files, seen=seen, left_out=left_out)
    planner = describe_planner(config) if needs_revelator(config) else {}
    described = {"adapter": planner, "generator": name_generator(config) if ranking.way == "bright" else ""}
    return _describe_run(config, command, benchmark, described, models), benchmark


def _list_files(about: BenchmarkConfig) -> list[Path]:
    """The files of a corpus, or of a folder in BEIR's form."""
    [path] = map(Path, about.path)
    if not path.is_dir():
        return [path]
    if about.format == "beir":
        return [path / "corpus.jsonl", path / "queries.jsonl", path / "qrels" / f"{about.split or TEST}.tsv"]
    return [path / "passages.jsonl"]


def load_cases(config: RunConfig, ranking: RankingConfig) -> LabelledCases:
    """Makes or reads all cases of the benchmark. Raises DataError."""
    about = config.benchmark
    if about.format == "beir":
        return read_beir_cases(Path(about.path[0]), about.split or TEST)
    return make_corpus_cases(Path(about.path[0]), ranking.per_template, ranking.seed, ranking.terms)


def run_questions(
    config: RunConfig,
    run: Run,
    benchmark: Benchmark,
    folder: Path,
    progress: Progress,
    shared: SharedModels | None = None,
    engine: Engine = work_here,
) -> None:
    """Asks every question that has no row in `folder` yet; on a cluster in shards, by the `engine`. Raises Unavailable
    or ServingError when a service is down or refuses: the rows so far are kept, and the same call continues. Raises
    ConfigError while another process writes into `folder`."""
    with lock_folder(folder), latency.use_tuned_collector():
        done = {row.id for row in begin_run(folder, run)}
        todo = [question for question in benchmark.questions if question.id not in done]
        bar = progress.add_task(run.name, total=len(run.ids), completed=len(done))

        def write(row: QuestionRow) -> None:
            append_rows(folder / QUESTIONS, [replace(row, seen=dict(benchmark.seen[row.id]))])
            progress.advance(bar)

        if config.system.ranking:
            for row in rank_pending_cases(config, config.system.ranking, set(run.ids) - done):
                write(row)
        elif config.system.predictions:
            predicted = read_predictions(Path(config.system.predictions), run.ids)
            for question in todo:
                write(score_prediction(start_row(question, benchmark), question, benchmark, predicted[question.id]))
        elif todo:
            with _tell_what_is_kept():
                if engine is work_here:
                    asyncio.run(_open_and_ask(config, benchmark, todo, write, shared))
                else:
                    _ask_in_shards(engine, config, benchmark, todo, write)


def rank_pending_cases(config: RunConfig, ranking: RankingConfig, todo: set[str]) -> Iterable[QuestionRow]:
    """Ranks the cases in `todo`. Loads no encoder when there are none."""
    made = load_cases(config, ranking)
    left = [case for case in made.cases if case.id in todo]
    if left and (needs_revelator(config) or ranking.way == "bright"):
        left = asyncio.run(_ask_about_cases(config, ranking, left, made.texts))
    if left:
        operators, about = config.ablation.operators or Operators(), config.benchmark
        yield from rank(left, made.texts, ranking, operators, about.name or about.format)


async def _ask_about_cases(
    config: RunConfig, ranking: RankingConfig, cases: Sequence[Case], texts: Sequence[str]
) -> list[Case]:
    """The cases with the labels or the queries that the revelator gives, or the reasoning of the language model."""
    async with AsyncExitStack() as stack:
        if ranking.way == "bright":
            cases = await reason_about_cases(cases, open_generator(config, NoModel(), stack))
        if needs_revelator(config):
            revelator = open_revelator(config, stack, SharedModels())
        judged = await judge_cases(cases, texts, revelator) if ranking.labels == "model" else cases
        return await translate_cases(judged, revelator) if needs_translation(config) else [*judged]


@contextmanager
def _tell_what_is_kept() -> Iterator[None]:
    try:
        yield
    except ServingError as error:
        hint = f"{error.hint or 'mend it'}; what was asked is kept, and the same command goes on"
        raise type(error)(error.message, where=error.where, hint=hint) from error


async def _open_and_ask(
    config: RunConfig,
    benchmark: Benchmark,
    todo: Sequence[BenchmarkQuestion],
    write: Callable[[QuestionRow], None],
    shared: SharedModels | None,
) -> None:
    """Asks the questions, `concurrency` at a time. Scores each as soon as it ends, and calls `write` with its row."""

    def report(question: BenchmarkQuestion, outcome: Trace | RevelatorError) -> None:
        write(_score(config, benchmark, question, outcome))

    async with open_system(config, shared, _list_golds(todo)) as ask:
        await ask_each(ask, todo, report, config.concurrency)


def _list_golds(questions: Iterable[BenchmarkQuestion]) -> dict[str, AnnotatedQuestion]:
    return {question.gold.question: question.gold for question in questions}


def _score(
    config: RunConfig, benchmark: Benchmark, question: BenchmarkQuestion, outcome: Trace | RevelatorError
) -> QuestionRow:
    row, name, baseline = start_row(question, benchmark), config.system.name, bool(config.system.baseline)
    if isinstance(outcome, RevelatorError):
        return replace(row, status="error", error=f"{type(outcome).__name__}: {outcome.message}")
    return score_trace(
        row,
        question,
        benchmark,
        outcome,
        compiles_plans=BASELINES[name].compiles if baseline else name in COMPILES,
        sequential=baseline and BASELINES[name].compiles,
        switched_off=[t for t in ("relevance", "end", "refine", "route") if getattr(config.ablation, t) is not None],
    )


def _ask_in_shards(
    engine: Engine,
    config: RunConfig,
    benchmark: Benchmark,
    todo: Sequence[BenchmarkQuestion],
    write: Callable[[QuestionRow], None],
) -> None:
    """Asks the questions on a cluster, shard by shard, and calls `write` with the rows, in the questions' order."""
    size = SHARD * config.concurrency
    shards = [todo[first : first + size] for first in range(0, len(todo), size)]
    asker = ShardAsker(config, replace(benchmark, questions=(), all_questions=(), seen={}), _list_golds(todo))
    for rows, error in engine(asker, shards):
        for row in rows:
            write(row)
        if error:
            raise error


class ShardAsker:
    """Asks shards of questions. The first one opens the system, which stays open as long as the process."""

    def __init__(self, config: RunConfig, benchmark: Benchmark, golds: dict[str, AnnotatedQuestion]) -> None:
        self._config, self._benchmark, self._golds = config, benchmark, golds

    @cached_property
    def _opened(self) -> tuple[asyncio.Runner, Ask, AsyncExitStack]:
        runner, stack = asyncio.Runner(), AsyncExitStack()
        return runner, runner.run(stack.enter_async_context(open_system(self._config, golds=self._golds))), stack

    def __call__(self, shard: Sequence[BenchmarkQuestion]) -> tuple[list[QuestionRow], ServingError | None]:
        """The rows in the order of the questions; where a service is down, those before, and its error."""
        rows: dict[str, QuestionRow] = {}

        def report(question: BenchmarkQuestion, outcome: Trace | RevelatorError) -> None:
            rows[question.id] = _score(self._config, self._benchmark, question, outcome)

        runner, ask, _ = self._opened
        fault = None
        try:
            runner.run(ask_each(ask, shard, report, self._config.concurrency))
        except ServingError as error:
            fault = error
        return [rows[question.id] for question in shard if question.id in rows], fault


async def ask_each(
    ask: Ask,
    questions: Iterable[BenchmarkQuestion],
    report: Callable[[BenchmarkQuestion, Trace | RevelatorError], None],
    concurrency: int,
) -> None:
    """Asks the questions, `concurrency` at a time. Calls `report` with each question and its trace, or the error that
    refused it. Raises Unavailable when a service is down, and ServingError where an endpoint refuses whatever it is
    asked; no question is reported after that."""
    queue = iter(questions)

    async def work() -> None:
        for question in queue:
            outcome: Trace | RevelatorError
            try:
                outcome = await ask(question.gold.question)
            except RevelatorError as error:
                # no fault of this question: a service is down, or an endpoint refuses whatever it is asked
                if isinstance(error, Unavailable) or type(error) is ServingError:
                    raise
                outcome = error
            report(question, outcome)

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
