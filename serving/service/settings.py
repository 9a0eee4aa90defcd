"""What a home folder's settings name beside its own models: endpoints that plan, judge and read, and sources of
knowledge."""

from __future__ import annotations

from contextlib import AsyncExitStack

from serving.executor.judges import JudgingRelease, ListwiseJudge, open_judge
from serving.home.config import REVELATOR, ServingConfig
from serving.knowledge.config import open_sources
from serving.knowledge.sources import Sources
from serving.models.answerability import WeighedGenerator
from serving.models.endpoint_revelator import EndpointRevelator
from serving.models.generators import EndpointGenerator
from serving.models.revelator_reader import RevelatorReader
from serving.protocols import Generator, Judge, Retriever, Revelator


def open_planner_and_judge(
    config: ServingConfig, released: Revelator, stack: AsyncExitStack
) -> tuple[Revelator, Judge]:
    """Who plans and who judges: the release, or endpoints, which are closed with the stack."""
    planner, judging = released, released
    if config.planner:
        planner, judging = EndpointRevelator(config.planner, timeout=config.timeout), JudgingRelease(released)
        stack.push_async_callback(planner.close)
    judge = open_judge(config.judge, judging, config.timeout)
    if isinstance(judge, ListwiseJudge):
        stack.push_async_callback(judge.close)
    return planner, judge


def choose_reader(config: ServingConfig, embedded: Generator, planner: Revelator, stack: AsyncExitStack) -> Generator:
    """Who reads passages: the embedded reader, the revelator that plans, or an endpoint, whose answers the embedded
    reader weighs."""
    if config.generator == REVELATOR:
        return RevelatorReader(planner)
    if not config.reads_at_endpoint:
        return embedded
    endpoint = EndpointGenerator(config.generator, config.generator_model, timeout=config.timeout)
    stack.push_async_callback(endpoint.close)
    return WeighedGenerator(endpoint, embedded)


def open_knowledge(
    config: ServingConfig, retriever: Retriever, generator: Generator, planner: Revelator, stack: AsyncExitStack
) -> Sources:
    """What is searched: the sources that the settings name, else the index alone."""
    path = config.sources
    sources = open_sources(path, retriever, generator, planner) if path else Sources.of_index(retriever)
    stack.push_async_callback(sources.close)
    return sources
