"""Questions: opens what a home folder serves in this process, and answers over it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, Unpack

from revelator import spans
from revelator.errors import (
    Cancelled,
    ConfigError,
    DeadlineExceeded,
    InvalidRequest,
    RevelatorError,
    ServingError,
    Unavailable,
)
from revelator.minilm import read_vocabulary
from revelator.plans.language import PlanLanguage
from revelator.tasks import TASKS
from revelator.trace import Event, Node, Trace
from revelator.wire import Options, write_options
from serving import latency
from serving.batching import gather_all
from serving.executor.executor import Executor, relay_events
from serving.executor.leaf_cache import LeafCache
from serving.home.config import ServingConfig
from serving.models.releases import REVELATOR, Traffic, VersionChoice, find_choice, use_choice
from serving.protocols import Completion, Scope
from serving.retrieval import LocalRetriever
from serving.retrieval.retriever import hold_generations
from serving.service.admission import Admission
from serving.service.metrics import INDEX_REFUSED, INDEX_VERSION, WAITING
from serving.service.models import IN_PROCESS, PLAIN_VERSION, Models, ServedIndex, open_models
from serving.service.options import read_deadline, read_wanted
from serving.service.settings import choose_reader, open_knowledge, open_planner_and_judge
from serving.service.telemetry import CURRENT, Arrival, Telemetry
from serving.triton.server import NOT_PRIVATE

EXECUTOR = "executor"
MODELS = (EXECUTOR, REVELATOR)
A_CORE = 2  # questions at work for each core of this machine, where it runs the models
PROMPT_CHARACTERS = 20_000
HOTTEST = 2.0
BACK_SECONDS = 30.0  # until a Triton server that was killed has its models again: 4 to 7 s, on a busy machine more
TRAVEL_SECONDS = 0.5  # of the time that a client waits, and a tenth of it at most: the answer has a way to go
MORE_TIME = "allow more time (deadline_ms)"
TELEMETRY: ContextVar[Telemetry] = ContextVar("telemetry")
Result = TypeVar("Result")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Metadata:
    """What comes with a request: the client's id for it, parameters, the seconds for which its client waits, and the
    groups that whoever asks is in (None: the owner of the files)."""

    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = math.inf
    groups: frozenset[str] | None = frozenset()

    def read_deadline(self) -> float | None:
        """Milliseconds: those that the client names, or most of what it waits. Raises InvalidRequest."""
        named = read_deadline(self.parameters.get("deadline_ms"))
        waits = 1000 * (self.seconds - min(TRAVEL_SECONDS, self.seconds / 10)) if self.seconds < math.inf else None
        return min((ms for ms in (named, waits) if ms is not None), default=None)


NO_METADATA = Metadata()


@dataclass(frozen=True)
class Prompt:
    """A prompt of a task for the revelator alone."""

    task: str
    text: str
    temperature: float = 0.0

    def check(self) -> None:
        """Raises InvalidRequest."""
        if self.task not in TASKS:
            raise InvalidRequest(f"there is no task {self.task!r:.60}", hint=f"one of {', '.join(TASKS)}")
        if len(self.text) > PROMPT_CHARACTERS:
            raise InvalidRequest(f"a prompt has {PROMPT_CHARACTERS:,} characters at most, not {len(self.text):,}")
        if not 0 <= self.temperature <= HOTTEST:
            raise InvalidRequest(f"a temperature is a number from 0 to {HOTTEST:g}, not {self.temperature}")


@asynccontextmanager
async def open_questions(home: Path, config: ServingConfig, place: str = IN_PROCESS) -> AsyncIterator[Questions]:
    """Opens models (at the `place` of `open_models`), index, sources and endpoints until the block ends. Raises
    ArtifactError, ConfigError and Unavailable for what cannot be opened."""
    spans.start(f"revelator-{EXECUTOR}")  # before the channel to a Triton server, whose calls then name their trace
    async with AsyncExitStack() as stack:
        traffic = Traffic(home)
        index, models, _ = await asyncio.gather(
            asyncio.to_thread(ServedIndex, config),
            open_models(home, config, traffic, place, stack),
            asyncio.to_thread(read_vocabulary),  # half a second, which the first question would wait
        )
        stack.callback(index.close)
        planner, judge = open_planner_and_judge(config, models.released, stack)
        generator = choose_reader(config, models.generator, planner, stack)
        sources = open_knowledge(config, index, generator, planner, stack)
        questions = Questions(config, traffic, models)
        questions.executor = Executor(
            planner,
            sources,
            generator,
            config.executor_limits,
            judge=judge,
            writing=config.writing,
            on_finish=questions.record,
            turn=questions.take_turn,
            cache=LeafCache() if config.answer_cache else None,
            routes_by_plan=config.planner is not None,
        )
        for retriever in sources.list_indexes().values():
            retriever.on_change = questions.report_indexes
        questions.report_indexes()
        with latency.use_tuned_collector():
            yield questions


def count_turns(config: ServingConfig, models: Models) -> int:
    """How many questions are answered at the same time, unless the file says it. Where a planner, a reader or a Triton
    server runs elsewhere, a question waits for the network most of its time, not for a core of this machine."""
    has_triton_elsewhere = models.host is not None and models.host.server is None
    if config.reads_at_endpoint or config.planner or has_triton_elsewhere:
        return max(1, 3 * config.max_in_flight // 4)
    return A_CORE * len(os.sched_getaffinity(0))


class Questions:
    """Answers questions until `drain`; each is admitted, told to telemetry, and bound to a version of the release and
    of each index. `on_indexes` is called, in a thread, when another version of an index is searched or one is
    refused."""

    executor: Executor
    on_indexes: Callable[[], object]

    def __init__(self, config: ServingConfig, traffic: Traffic, models: Models) -> None:
        self.config = config
        self.limits = config.executor_limits
        self.admission = Admission(config.max_in_flight, config.at_once or count_turns(config, models))
        self.is_open = True
        self.is_stopping = False
        self.on_indexes = lambda: None
        self._traffic = traffic
        self.models = models
        self._versions = models.versions
        self._telemetry = {model: Telemetry(model) for model in MODELS}
        self._idle = asyncio.Event()
        self._idle.set()

    async def answer(self, question: str, options: str = "", metadata: Metadata = NO_METADATA) -> Trace:
        """Answers one question, whose options are JSON. Raises the errors that `Executor.run` raises, Overloaded,
        Unavailable once `drain` was called, and ServingError for a fault of this program."""
        return await self._serve(EXECUTOR, metadata, lambda: self._run(question, options, metadata))

    async def stream(
        self, question: str, options: str = "", metadata: Metadata = NO_METADATA
    ) -> AsyncGenerator[Event, None]:
        """Answers one question, and yields its events as they happen. Raises what `answer` raises. Closing the
        generator cancels the question."""

        def serve(listener: Callable[[Event], None]) -> Coroutine[Any, Any, Trace]:
            return self._serve(EXECUTOR, metadata, lambda: self._run(question, options, metadata, listener))

        async with aclosing(relay_events(serve)) as events:
            async for event in events:
                yield event

    async def ask(
        self, question: str, groups: frozenset[str] | None = frozenset(), **options: Unpack[Options]
    ) -> AsyncGenerator[Event, None]:
        """`stream`, with options as `revelator.client.AsyncClient.stream` takes them, for a caller of these groups."""
        written = await asyncio.to_thread(write_options, options) if options.get("reuse") else write_options(options)
        parameters = {**spans.make_headers(), "deadline_ms": options.get("deadline_ms")}
        metadata = Metadata(parameters=parameters, groups=groups)
        async with aclosing(self.stream(question, written, metadata)) as events:
            async for event in events:
                yield event

    async def complete(
        self, prompts: Sequence[Prompt], metadata: Metadata = NO_METADATA, version: str = ""
    ) -> tuple[list[Completion], str]:
        """The completion of each prompt, in order, by a `version` that `has_version` knows, or by the release; and
        the version that completed them. Raises InvalidRequest, and what `answer` raises."""
        for prompt in prompts:
            prompt.check()

        async def run() -> tuple[list[Completion], str]:
            hint = "allow more time (deadline_ms, or the client's timeout), or send fewer prompts at a time"
            with self._choose_version(metadata.id, version) as choice:
                async with self._take_turn(metadata, "the prompts were not completed", hint):
                    completions = await gather_all(map(self._complete, prompts))
                return completions, ", ".join(sorted(choice.answered[REVELATOR]))

        return await self._serve(REVELATOR, metadata, run)

    async def plan(self, question: str, language: PlanLanguage, metadata: Metadata = NO_METADATA) -> Trace:
        """The plan that the revelator writes of a question. Raises what `answer` and `Executor.plan` raise."""

        async def run() -> Trace:
            with self._choose_version(metadata.id or question):
                async with self._take_turn(metadata, "the question was not planned", MORE_TIME):
                    return await self.executor.plan(question, language)

        return await self._serve(EXECUTOR, metadata, run)

    async def search(self, query: str, k: int, metadata: Metadata = NO_METADATA, where: str = "") -> Node:
        """The passages that the sources find within a filter. Raises what `answer` and `Executor.search` raise."""

        async def run() -> Node:
            with self._choose_version(metadata.id or query):
                async with self._take_turn(metadata, "the sources did not answer", MORE_TIME):
                    return await self.executor.search(query, k, Scope(where, metadata.groups))

        return await self._serve(EXECUTOR, metadata, run)

    @asynccontextmanager
    async def _take_turn(self, metadata: Metadata, late: str, hint: str) -> AsyncIterator[None]:
        """Around the work of a request that is no question, which its deadline ends. Raises DeadlineExceeded that says
        what is `late`."""
        seconds = min(metadata.read_deadline() or math.inf, self.limits.deadline_ms) / 1000
        try:
            async with asyncio.timeout(seconds), self.take_turn():
                yield
        except TimeoutError as error:
            raise DeadlineExceeded(f"{late} within {1000 * seconds:g} ms", hint=hint) from error

    async def _complete(self, prompt: Prompt) -> Completion:
        [completion] = await self.models.released.complete(prompt.task, [prompt.text], temperature=prompt.temperature)
        return completion

    def find_version(self, model: str) -> str | None:
        """The version of a model that is served; None for a model that is not."""
        if model == REVELATOR:
            release = self._traffic.read_release() if self.config.needs_release else None
            return str(release.version) if release else None
        return PLAIN_VERSION if model == EXECUTOR else None

    def has_version(self, model: str, version: str) -> bool:
        """Whether a version of a model answers: the one that is served, or one that a deploy has loaded beside it."""
        served = self.find_version(model)
        if served is None or version in ("", served):
            return served is not None
        return model == REVELATOR and self._versions is not None and self._versions.is_open(version)

    async def load_versions(self, versions: Collection[int]) -> None:
        """Opens versions of the revelator beside the release, in place of those of the last call. Raises ArtifactError
        for one that does not open, and ConfigError where this process runs no versions. A Triton server that is started
        anew meanwhile is asked again; Unavailable once it has been away for `BACK_SECONDS`."""
        if self._versions is None:
            raise ConfigError("this service runs no versions of the revelator: an endpoint or a vLLM server does")
        end = time.monotonic() + BACK_SECONDS
        while True:
            try:
                return await self._versions.load([*map(str, versions)])
            except Unavailable:
                if self.models.host is None or time.monotonic() > end:
                    raise
            await asyncio.sleep(1.0)

    @asynccontextmanager
    async def take_turn(self) -> AsyncIterator[None]:
        """A question's turn to be worked on, with the versions of the indexes that stand in their folders then."""
        async with self.admission.turn(), hold_generations(self.indexes.values()):
            yield

    @property
    def indexes(self) -> dict[str, LocalRetriever]:
        return self.executor.sources.list_indexes()

    def report_indexes(self) -> None:
        """Tells metrics, and `on_indexes`, which versions of indexes are searched."""
        for name, retriever in self.indexes.items():
            INDEX_VERSION.labels(name).set(retriever.index.version)
            INDEX_REFUSED.labels(name).set(bool(retriever.refused))
        self.on_indexes()

    def report_waiting(self) -> None:
        """Tells metrics how many questions wait for a turn; one admission for all models."""
        WAITING.labels(EXECUTOR).set(self.admission.waiting)

    def record(self, trace: Trace) -> None:
        """Tells telemetry of the trace that the current task has finished."""
        TELEMETRY.get().record_trace(_add_versions(trace, find_choice()))

    async def is_ready(self) -> bool:
        """Whether questions should be sent here, and the Triton server has the models, where there is one."""
        return not self.is_stopping and (self.models.host is None or await self.models.host.is_ready())

    def describe_host(self) -> Iterator[str]:
        """Who hosts the models, where that is not this process, a line each."""
        if host := self.models.host:
            yield f"Triton  {host.url}"
            if host.server and not host.server.is_private:
                yield NOT_PRIVATE

    async def leave(self, seconds: float, hurried: asyncio.Event) -> None:
        """From now on this service is not ready. For `seconds`, or until it is `hurried`, it still takes questions in:
        a balancer that looks at its health notices meanwhile, and sends the next ones elsewhere."""
        self.is_stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await hurried.wait()

    async def drain(self, seconds: float) -> None:
        """From now on questions are Unavailable. Returns when those in flight are answered, or after `seconds`."""
        self.is_stopping, self.is_open = True, False
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d questions are in flight after %g s", self.admission.in_flight, seconds)

    async def _serve(self, model: str, metadata: Metadata, work: Callable[[], Awaitable[Result]]) -> Result:
        """Does the work of one request in its place, and tells telemetry how it ended."""
        telemetry = self._telemetry[model]
        arrival = Arrival.of(metadata.id, metadata.parameters)
        CURRENT.set(arrival)
        TELEMETRY.set(telemetry)
        try:
            if not self.is_open:
                raise Unavailable("the service is stopping", hint="ask again: another may take its place")
            seconds = min(metadata.read_deadline() or math.inf, self.limits.deadline_ms) / 1000
            with self._take_place(seconds), spans.open_span(model, "server", arrival.traceparent, request=arrival.id):
                return await work()
        except asyncio.CancelledError:
            telemetry.record_error(Cancelled("the client went away, or the service is stopping"))
            raise
        except Exception as error:
            telemetry.record_error(error)
            if isinstance(error, RevelatorError):
                raise
            log.exception("unexpected error")
            fault = ServingError(f"{type(error).__name__}: {error}", hint="the service's log holds the traceback")
            raise fault from error

    @contextmanager
    def _take_place(self, seconds: float) -> Iterator[None]:
        report = self._telemetry[EXECUTOR].report_in_flight  # one admission for all models
        try:
            with self.admission.place(seconds):
                self._idle.clear()
                report(self.admission.in_flight, self.admission.limit)
                yield
        finally:
            report(self.admission.in_flight, self.admission.limit)
            if not self.admission.in_flight:
                self._idle.set()

    async def _run(
        self, question: str, options: str, metadata: Metadata, listener: Callable[[Event], None] | None = None
    ) -> Trace:
        wanted = await read_wanted(question, options, metadata.read_deadline(), self.limits)
        scope = Scope(wanted.pop("where", ""), metadata.groups)
        with self._choose_version(metadata.id or question) as choice:

            def tell(event: Event) -> None:
                if event.kind == "finished":
                    event.changes["versions"] = {**event.changes.get("versions", {}), **choice.versions()}
                assert listener
                listener(event)

            trace = await self.executor.run(question, **wanted, scope=scope, listener=tell if listener else None)
        return _add_versions(trace, choice)

    @contextmanager
    def _choose_version(self, request: str, version: str = "") -> Iterator[VersionChoice]:
        """The version that is named, or the release's, or "" where it neither plans nor judges: only replies tell what
        an endpoint is."""
        if not self.config.needs_release:
            with use_choice(VersionChoice(request=request)) as choice:
                yield choice
            return
        try:
            with self._traffic.choose_version(request, version) as choice:
                yield choice
        finally:
            if self._versions:
                self._versions.close_unused()


def _add_versions(trace: Trace, choice: VersionChoice) -> Trace:
    return replace(trace, versions={**trace.versions, **choice.versions()})
