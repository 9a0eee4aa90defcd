"""Opens systems: the executor or a baseline in this process, or a running service. A system is one function from a
question to its trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from data_gen.questions import AnnotatedQuestion
from evaluation.baselines.methods import run_baseline
from evaluation.harness.ablations import (
    AblatedRevelator,
    answer_by_gold_plan,
    answer_from_gold_passages,
    keep_sources,
)
from evaluation.harness.config import GOLD, RunConfig
from evaluation.harness.folder import read_questions
from evaluation.harness.gold_index import Ask, GoldRetriever, announce_question
from evaluation.harness.system_needs import (
    JUDGED,
    choose_adapter,
    choose_judge,
    choose_strategy,
    needs_index,
    needs_revelator,
    read_limits,
)
from revelator.client import AsyncClient
from revelator.errors import ConfigError
from revelator.limits import Limits
from revelator.trace import Trace
from serving.executor.evidence import Models
from serving.executor.executor import Executor
from serving.executor.judges import JudgeSetting, ListwiseJudge, open_judge
from serving.knowledge.config import open_sources
from serving.knowledge.sources import Sources
from serving.models.adapters import find_adapter
from serving.models.answerability import WeighedGenerator
from serving.models.embedded import EmbeddedGenerator
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.generators import EndpointGenerator
from serving.models.revelator_reader import RevelatorReader
from serving.protocols import Generator, Judge, NoModel, Retriever, Revelator, Writing
from serving.retrieval import LocalRetriever
from serving.retrieval.logical_search import LogicalSettings
from serving.retrieval.places import open_index, read_address

if TYPE_CHECKING:
    from serving.models.engine import Engine

Services = tuple[Revelator, Retriever, Generator, Judge]


class SharedModels:
    """Indexes and engines that several runs share: each is opened once."""

    def __init__(self) -> None:
        self.open_index = cache(open_index)
        self.open_engine = cache(_open_engine)


def _open_engine(base: str, adapter: Path | None, threads: int | None) -> Engine:
    from serving.models.engine import Engine

    return Engine(base, adapter, threads=threads)


@asynccontextmanager
async def open_system(
    config: RunConfig, shared: SharedModels | None = None, golds: Mapping[str, AnnotatedQuestion] | None = None
) -> AsyncIterator[Ask]:
    """Opens everything that a checked configuration needs until the block ends. The next run can take what `shared` has
    opened. A bound gets the `golds` of its questions, by their text."""
    async with AsyncExitStack() as stack:
        ask = await _open_ask(config, stack, shared or SharedModels(), golds or {})
        yield announce_question(ask) if config.index == GOLD else ask


async def _open_ask(
    config: RunConfig, stack: AsyncExitStack, shared: SharedModels, known: Mapping[str, AnnotatedQuestion]
) -> Ask:
    if config.url:
        return await _open_client(config, stack)
    name, limits = config.system.name, read_limits(config)
    services = _open_services(config, stack, shared, known)
    revelator, retriever, generator, judge = services
    models, index = Models(revelator, generator, judge), Sources.of_index(retriever)
    if config.system.baseline:
        reads = _count_documents_read(config.ablation.read_as, known)

        def ask(question: str) -> Awaitable[Trace]:
            own = replace(limits, kept=reads[question]) if reads else limits
            return run_baseline(name, question, models, index, own)

        return ask
    if name == "gold-passages":
        return lambda question: answer_from_gold_passages(models, index, limits, known[question])
    executor, strategy = _open_executor(config, services, stack, limits), choose_strategy(config)
    if name == "gold-plan":
        return lambda question: answer_by_gold_plan(executor, known[question])
    return lambda question: executor.run(question, strategy=strategy)


def _count_documents_read(folder: str | None, golds: Mapping[str, AnnotatedQuestion]) -> dict[str, int]:
    """How many documents another run read for each question. Raises ConfigError for one that it was not asked."""
    if folder is None:
        return {}
    reads = {row.question: max(1, row.cost.documents) for row in read_questions(Path(folder))}
    if missing := [question for question in golds if question not in reads]:
        raise ConfigError(f"the run {folder} was not asked {missing[0]!r:.80}", where="ablation.read_as")
    return reads


async def _open_client(config: RunConfig, stack: AsyncExitStack) -> Ask:
    client = await stack.enter_async_context(AsyncClient(config.url))
    strategy = choose_strategy(config)

    async def ask(question: str) -> Trace:
        limits = config.limits or None
        return (await client.ask(question, strategy=strategy, limits=limits, fresh=True)).trace  # or it costs nothing

    return ask


def _open_services(
    config: RunConfig, stack: AsyncExitStack, shared: SharedModels, golds: Mapping[str, AnnotatedQuestion]
) -> Services:
    revelator: Revelator = open_revelator(config, stack, shared) if needs_revelator(config) else NoModel()
    retriever: Retriever = NoModel()
    if config.index == GOLD:
        retriever = GoldRetriever(golds)
    elif needs_index(config):
        chosen = config.ablation.operators
        settings = LogicalSettings(**chosen.model_dump() if chosen else {})
        local = LocalRetriever(shared.open_index(read_address(config.index)), settings)
        stack.callback(local.close)
        retriever = local
    judging = revelator
    setting: JudgeSetting = choose_judge(config) if config.system.name in JUDGED else "none"
    if config.planner and setting == "embedded":
        judging = _open_adapter(config, stack, shared)
    judge = _open_judge(setting, judging, stack, config.timeout)
    ablated = AblatedRevelator(revelator, config.ablation, golds.values())
    return ablated, retriever, open_generator(config, revelator, stack), judge


def open_generator(config: RunConfig, revelator: Revelator, stack: AsyncExitStack) -> Generator:
    if config.generator == "revelator":
        return RevelatorReader(revelator)
    if config.generator is None:
        return EmbeddedGenerator()
    endpoint = EndpointGenerator(config.generator.url, config.generator.model, timeout=config.timeout)
    stack.push_async_callback(endpoint.close)
    return WeighedGenerator(endpoint, EmbeddedGenerator())


def open_revelator(config: RunConfig, stack: AsyncExitStack, shared: SharedModels) -> Revelator:
    """Opens the endpoint that plans, or the adapter in this process, until the stack is closed."""
    if config.planner:
        return _open_endpoint(config.planner, stack, config.timeout)
    return _open_adapter(config, stack, shared)


def _open_endpoint(planner: PlannerConfig, stack: AsyncExitStack, timeout: float | None) -> Revelator:
    endpoint = EndpointRevelator(planner, timeout=timeout)
    stack.push_async_callback(endpoint.close)
    return endpoint


def _open_judge(setting: JudgeSetting, revelator: Revelator, stack: AsyncExitStack, timeout: float | None) -> Judge:
    judge = open_judge(setting, revelator, timeout)
    if isinstance(judge, ListwiseJudge):
        stack.push_async_callback(judge.close)
    return judge


def _open_adapter(config: RunConfig, stack: AsyncExitStack, shared: SharedModels) -> Revelator:
    import torch

    from serving.models.local import LocalRevelator

    torch.manual_seed(config.seed)
    found = find_adapter(choose_adapter(config), Path(config.home))
    engine = shared.open_engine(config.base or found.base_name, found.folder, config.threads)
    local = LocalRevelator(engine, config.decoding)
    stack.callback(local.close)
    return local


def _open_executor(config: RunConfig, services: Services, stack: AsyncExitStack, limits: Limits) -> Executor:
    revelator, retriever, generator, judge = services
    sources = Sources.of_index(retriever)
    if config.sources:
        writer = generator if config.writer else None
        sources = open_sources(
            Path(config.sources), retriever, writer, revelator, config.ablation.list_source_settings()
        )
        if config.ablation.sources is not None:
            sources = keep_sources(sources, config.ablation.sources)
        stack.push_async_callback(sources.close)
    writing = Writing(own_knowledge=config.own_knowledge)  # no text: it changes no answer
    return Executor(
        revelator,
        sources,
        generator,
        limits,
        judge=judge,
        writing=writing,
        routes_by_plan=config.planner is not None,
        names_parts=config.ablation.part_names is None,
    )
