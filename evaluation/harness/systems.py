"""Opens systems: the executor or a baseline, in this process or over a running Triton. A system is one function from
a question to its trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_gen.questions import AnnotatedQuestion
from evaluation.baselines.methods import BASELINES, run_baseline
from evaluation.harness.ablations import (
    AFFECTS,
    AblatedRevelator,
    answer_by_gold_plan,
    answer_from_gold_passages,
    check_ablation,
    keep_sources,
)
from evaluation.harness.config import RunConfig
from evaluation.harness.folder import read_questions
from revelator.artifact import find_base, require_task
from revelator.client import AsyncClient
from revelator.errors import ConfigError, InvalidRequest
from revelator.files import sha256_file
from revelator.limits import FREE, Limits, Strategy
from revelator.trace import Trace
from serving.executor.evidence import Models
from serving.executor.executor import Executor
from serving.executor.judges import JudgeConfig, JudgeSetting, ListwiseJudge, open_judge
from serving.executor.trees import NoModel
from serving.knowledge.config import open_sources, read_sources
from serving.knowledge.sources import Sources
from serving.models.adapters import find_adapter
from serving.models.embedded import EmbeddedGenerator
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.generators import EndpointGenerator
from serving.models.triton import RemoteGenerator, RemoteRetriever, RemoteRevelator, TritonModels
from serving.protocols import Generator, Judge, Retriever, Revelator, Writing
from serving.retrieval import Index, LocalRetriever
from serving.retrieval.index_folder import INDEX
from serving.retrieval.logical_search import LogicalSettings
from serving.triton.access import INNER, read_secret
from serving.triton.config import ServingConfig
from serving.triton.control import open_control
from serving.triton.repository import SERVING

if TYPE_CHECKING:
    from tritonclient.grpc import InferenceServerClient

    from serving.models.engine import Engine

Ask = Callable[[str], Awaitable[Trace]]
Services = tuple[Revelator, Retriever, Generator, Judge]
JUDGED = (*AFFECTS["relevance"], "atomic", "gold-plan")  # systems that judge documents


def needs_translation(config: RunConfig) -> bool:
    """Whether the revelator writes the logical queries."""
    ranking = config.system.ranking
    written = ranking is not None and (ranking.queries == "model" or config.benchmark.format == "beir")
    return written and ranking is not None and ranking.way == "logical"


def needs_revelator(config: RunConfig) -> bool:
    if config.system.ranking:
        return needs_translation(config) or config.system.ranking.labels == "model"
    return BASELINES[config.system.name].revelator if config.system.baseline else needs_index(config)


def needs_index(config: RunConfig) -> bool:
    if config.system.baseline:
        return BASELINES[config.system.name].searches
    return config.system.name not in ("direct", "gold-passages")


def takes_option(config: RunConfig, name: str) -> bool:
    """Whether a run of this configuration uses its `generator`, `merge`, `judge` or `planner`."""
    system = config.system
    if config.url or system.predictions:
        return False
    if system.ranking:
        ranks = {"generator": system.ranking.way == "bright", "planner": needs_revelator(config)}
        return ranks.get(name, False)
    if name == "generator":
        return True
    if name == "merge":
        return bool(system.strategy) or system.name == "gold-plan"
    if name == "judge":
        return system.name in JUDGED and config.ablation.relevance is None
    return needs_revelator(config) and system.name != "gold-plan"


def check_system(config: RunConfig) -> None:
    """Raises ConfigError for a configuration that cannot run, before anything is opened."""
    system, name = config.system, config.system.name
    if system.baseline and name not in BASELINES:
        raise ConfigError(
            f"there is no baseline {name!r}", where="system.baseline", hint=f"one of {', '.join(BASELINES)}"
        )
    check_ablation(config.ablation, name, served=bool(config.url))
    read_limits(config)
    if config.url:
        if system.bound:
            raise ConfigError("a bound is measured in this process", where="url", hint="leave `url` out")
        own = ("index", "generator", "planner", "timeout", "sources", "base", "own_knowledge")
        judge = ["judge"] if config.judge != "embedded" else []
        if given := [key for key in own if getattr(config, key)] + judge:
            message = f"{', '.join(given)}: a running server has its own"
            raise ConfigError(message, where="url", hint="leave it out of the configuration, or leave `url` out")
        return
    if switches := [name for name in ("sources", "select") if getattr(config.ablation, name) and not config.sources]:
        raise ConfigError(
            "no sources are named", where=f"ablation.{switches[0]}", hint="name their file: sources: sources.yaml"
        )
    if config.generator is None and (config.merge == "generator" or config.own_knowledge):
        field = "own_knowledge" if config.own_knowledge else "merge"
        raise ConfigError("the embedded reader writes no answers", where=field, hint="name a `generator`")
    if config.ablation.relevance is False and isinstance(config.judge, JudgeConfig):
        hint = "leave out one of the two"
        raise ConfigError(f"{config.judge} judges, and nobody is to", where="ablation.relevance", hint=hint)
    if needs_index(config) and not config.index:
        raise ConfigError("which index is searched?", where="index", hint="revelator index build FILES --out DIR")
    if system.baseline and BASELINES[name].writes and config.generator is None:
        hint = "generator: {url: http://127.0.0.1:8000/v1, model: NAME}"
        raise ConfigError(
            f"{name} prompts a language model, and the embedded reader is none", where="generator", hint=hint
        )


def read_limits(config: RunConfig) -> Limits:
    """Reads the limits of the configuration; the others are the executor's. Raises ConfigError."""
    kept = BASELINES[config.system.name].kept if config.system.baseline else None
    usual = replace(Limits(), deadline_ms=max(Limits().deadline_ms, 1000 * (config.timeout or 0)))
    chosen = ({"kept": kept} if kept else {}) | dict[str, Any](config.limits)
    try:
        usual.lower(chosen)
    except InvalidRequest as error:
        raise ConfigError(error.message, where="limits", hint=error.hint) from error
    for name, value in chosen.items():
        if config.url and name not in FREE and value > getattr(usual, name):
            message = f"{name} = {value}: a running server takes {getattr(usual, name)} at most"
            raise ConfigError(message, where="limits")
    return replace(usual, **chosen)


def describe_system(config: RunConfig) -> dict[str, Any]:
    """Describes `adapter`, `index` and `generator` of a run by version and digest. Raises ArtifactError for a
    folder that is no index, and Unavailable if no server answers."""
    if config.url:
        return _describe_served(config)
    return {
        "adapter": describe_planner(config) | describe_judge(config) if needs_revelator(config) else {},
        "index": _describe_index(Path(config.index)) if needs_index(config) else {},
        "generator": name_generator(config),
    }


def name_generator(config: RunConfig) -> str:
    return f"{config.generator.model} at {config.generator.url}" if config.generator else "embedded"


def describe_planner(config: RunConfig) -> dict[str, str]:
    """The endpoint that plans, or version, manifest and base of the adapter."""
    if config.planner:
        return {"planner": str(config.planner)}
    found = find_adapter(config.adapter, Path(config.home))
    if config.sources and (config.ablation.select or read_sources(Path(config.sources)).select) == "revelator":
        require_task("select", find_base(config.base or found.base_name), found.folder)
    version = str(found.version.version) if found.version else "" if found.folder else "base"
    made = sha256_file(found.folder / "manifest.json") if found.folder else ""
    return {"version": version, "manifest": made, "base": Path(config.base or found.base_name).name}


def describe_judge(config: RunConfig) -> dict[str, str]:
    """Who judges documents, where that is not the adapter that plans."""
    setting = choose_judge(config)
    if config.system.name not in JUDGED or (setting == "embedded" and not config.planner):
        return {}
    return {"judge": choose_adapter(config) if setting == "embedded" else str(setting)}


def choose_judge(config: RunConfig) -> JudgeSetting:
    return "none" if config.ablation.relevance is False else config.judge


def choose_adapter(config: RunConfig) -> str:
    """The adapter that the configuration names. Where an endpoint plans, nobody need have promoted a champion."""
    return "base" if config.planner and "adapter" not in config.model_fields_set else config.adapter


def _describe_index(folder: Path) -> dict[str, Any]:
    manifest = INDEX.read_manifest(folder)
    return {"folder": str(folder), "digest": sha256_file(folder / "manifest.json"), "count": manifest["count"]}


def _describe_served(config: RunConfig) -> dict[str, Any]:
    """Asks the server about its models; reads its index if that is on this machine."""
    with open_control(config.url) as client:
        served = _read_served_config(client)
        if served.planner:
            adapter = {"planner": str(served.planner)}
        else:
            adapter = {"version": ", ".join(client.get_model_metadata("revelator", as_json=True).get("versions", []))}
    folder = served.index or Path()
    index = _describe_index(folder) if (folder / "manifest.json").is_file() else {"folder": str(folder)}
    return {"adapter": adapter, "index": index, "generator": served.reader}


def _read_served_config(client: InferenceServerClient) -> ServingConfig:
    parameters = client.get_model_config("executor", as_json=True)["config"]["parameters"]
    return ServingConfig.model_validate_json(parameters[SERVING]["string_value"])


class SharedModels:
    """Indexes and engines that several runs share: each is opened once."""

    def __init__(self) -> None:
        self.open_index = cache(Index.open)
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
    shared = shared or SharedModels()
    async with AsyncExitStack() as stack:
        name, limits, known = config.system.name, read_limits(config), golds or {}
        if config.system.strategy and config.url:
            yield await _open_client(config, stack)
            return
        if config.url:
            services: Services = await _open_served_models(config.url, Path(config.home), stack)
        else:
            services = _open_services(config, stack, shared, known)
        revelator, retriever, generator, judge = services
        models, index = Models(revelator, generator, judge), Sources.of_index(retriever)
        if config.system.baseline:
            reads = _count_documents_read(config.ablation.read_as, known)

            def ask(question: str) -> Awaitable[Trace]:
                own = replace(limits, kept=reads[question]) if reads else limits
                return run_baseline(name, question, models, index, own)

            yield ask
        elif name == "gold-passages":
            yield lambda question: answer_from_gold_passages(models, index, limits, known[question])
        else:
            executor, strategy = _open_executor(config, services, stack, limits), choose_strategy(config)
            if name == "gold-plan":
                yield lambda question: answer_by_gold_plan(executor, known[question])
            else:
                yield lambda question: executor.run(question, strategy=strategy)


async def _open_served_models(url: str, home: Path, stack: AsyncExitStack) -> Services:
    """The models of a running server, and the endpoints that its executor plans, judges and reads with."""
    with open_control(url) as client:
        served = _read_served_config(client)
    models = await stack.enter_async_context(TritonModels(url, read_secret(home, INNER)))
    generator: Generator = RemoteGenerator(models)
    if served.reads_at_endpoint:
        generator = EndpointGenerator(served.generator, served.generator_model, timeout=served.timeout)
        stack.push_async_callback(generator.close)
    revelator: Revelator = RemoteRevelator(models)
    judge = _open_judge(served.judge, revelator, stack, served.timeout)
    if served.planner:
        revelator = _open_endpoint(served.planner, stack, served.timeout)
    return revelator, RemoteRetriever(models), generator, judge


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
        return (await client.ask(question, strategy=strategy, limits=config.limits or None)).trace

    return ask


def choose_strategy(config: RunConfig) -> Strategy:
    """Chooses the strategy: with `route` switched off, every question is compiled."""
    return "compile" if config.ablation.route is False else config.system.strategy or "auto"


def _open_services(
    config: RunConfig, stack: AsyncExitStack, shared: SharedModels, golds: Mapping[str, AnnotatedQuestion]
) -> Services:
    revelator: Revelator = open_revelator(config, stack, shared) if needs_revelator(config) else NoModel()
    retriever: Retriever = NoModel()
    if needs_index(config):
        chosen = config.ablation.operators
        settings = LogicalSettings(**chosen.model_dump() if chosen else {})
        local = LocalRetriever(shared.open_index(Path(config.index)), settings)
        stack.callback(local.close)
        retriever = local
    judging = revelator
    setting: JudgeSetting = choose_judge(config) if config.system.name in JUDGED else "none"
    if config.planner and setting == "embedded":
        judging = _open_adapter(config, stack, shared)
    judge = _open_judge(setting, judging, stack, config.timeout)
    ablated = AblatedRevelator(revelator, config.ablation, golds.values())
    return ablated, retriever, open_generator(config, stack), judge


def open_generator(config: RunConfig, stack: AsyncExitStack) -> Generator:
    if config.generator is None:
        return EmbeddedGenerator()
    endpoint = EndpointGenerator(config.generator.url, config.generator.model, timeout=config.timeout)
    stack.push_async_callback(endpoint.close)
    return endpoint


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
        writer = generator if config.generator else None
        sources = open_sources(Path(config.sources), retriever, writer, revelator, config.ablation.select)
        if config.ablation.sources is not None:
            sources = keep_sources(sources, config.ablation.sources)
        stack.push_async_callback(sources.close)
    writing = Writing(config.merge, own_knowledge=config.own_knowledge)  # no text: it changes no answer
    return Executor(revelator, sources, generator, limits, judge=judge, writing=writing)
