"""The executor behind its Triton model: a request's strings in, a trace out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from revelator.errors import DeadlineExceeded, InvalidRequest
from revelator.limits import Limits
from revelator.minilm import read_vocabulary
from revelator.trace import Event, Trace
from serving.executor.executor import Executor
from serving.knowledge.config import open_sources
from serving.models.endpoint_revelator import EndpointRevelator
from serving.models.releases import Choice, Traffic, current_choice, read_release, use_choice
from serving.models.routing import RoutedRevelator
from serving.models.triton import RemoteGenerator, RemoteRetriever, RemoteRevelator, TritonModels
from serving.models.vllm import VllmRevelator, read_facts
from serving.models.vllm_server import ReleasedAdapter
from serving.pauses import offload
from serving.protocols import Revelator
from serving.triton.access import INNER, read_secret
from serving.triton.inside.admission import Admission
from serving.triton.inside.options import read_history, read_options, read_trace
from serving.triton.inside.processes import ProcessGuard
from serving.triton.repository import read_planner, read_writing


class QuestionService:
    """Answers questions with the three other models of the server at `url`.

    The release of `home` answers (`serving.models.releases`). Of the `parameters` of a config.pbtxt, `sources` names
    the knowledge sources, without which the served retriever alone is searched; `vllm` the version folder of the
    model `revelator_vllm`, and `planner` (JSON) an endpoint, which then plans in place of `revelator`; `limits` is
    JSON that lowers the executor's own, `writing` JSON that says what a language model writes. `on_finish` is called
    with each finished trace; `admission` says when a question may begin.
    """

    def __init__(
        self,
        url: str,
        home: Path,
        parameters: Mapping[str, str],
        on_finish: Callable[[Trace], object] = lambda trace: None,
        admission: Admission | None = None,
    ) -> None:
        self.url = url
        self.home = home
        self.sources, self.vllm = (Path(parameters[n]) if n in parameters else None for n in ("sources", "vllm"))
        self.planner = read_planner(parameters)
        self.writing = read_writing(parameters)
        self.limits = Limits.of_deployment(json.loads(parameters.get("limits", "{}")))
        self._on_finish = on_finish
        self._admission = admission
        self._traffic = Traffic(home)

    async def open(self, stack: AsyncExitStack) -> None:
        await asyncio.to_thread(read_vocabulary)  # half a second, which the first question would wait
        models = await stack.enter_async_context(TritonModels(self.url, read_secret(self.home, INNER)))
        planner: Revelator
        if self.planner:
            planner = endpoint = EndpointRevelator(self.planner)
            stack.push_async_callback(endpoint.close)
        elif self.vllm:
            planner = VllmRevelator(models, read_facts(self.vllm))
        else:
            planner = routed = RoutedRevelator(self._open_released(models, stack), self.home)
            stack.push_async_callback(routed.close)
        services = planner, RemoteRetriever(models), RemoteGenerator(models, ProcessGuard("generator").call)
        logical = RemoteRetriever(models, "logic")
        sources = open_sources(self.sources, services[1], services[2], logical, planner) if self.sources else None
        if sources:
            stack.push_async_callback(sources.close)
        turn = self._admission.turn if self._admission else nullcontext
        if self._admission:
            stack.callback(asyncio.create_task(self._admission.watch_cores()).cancel)
        self._executor = Executor(
            *services,
            self.limits,
            sources=sources,
            logical=logical,
            writing=self.writing,
            on_finish=self._report_finish,
            turn=turn,
        )

    def _open_released(self, models: TritonModels, stack: AsyncExitStack) -> Revelator:
        """What asks the version that a question's choice names: at the engine of the release, which a deploy changes
        only while no server runs."""
        release = read_release(self.home)
        if release is None or not release.vllm:
            return RemoteRevelator(models)
        released = ReleasedAdapter(release.vllm)
        stack.push_async_callback(released.close)
        return released

    def seconds_allowed(self, deadline_ms: object) -> float:
        """Seconds in which a question must end. Raises InvalidRequest."""
        return min(_read_milliseconds(deadline_ms) or self.limits.deadline_ms, self.limits.deadline_ms) / 1000

    async def answer(self, question: str, options: str, deadline_ms: object, request_id: str = "") -> Trace:
        """One question's trace. Raises InvalidRequest for options or a deadline that are not what they should be."""
        wanted = await self._read_options(question, options, deadline_ms)
        with self._choose_version(request_id or question) as choice:
            trace = await self._executor.run(question, **wanted)
        return replace(trace, versions={**trace.versions, **choice.versions()})

    async def stream(
        self, question: str, options: str, deadline_ms: object, request_id: str = ""
    ) -> AsyncGenerator[Event, None]:
        """The same question's events, each when it happens. Closing the generator cancels the question."""
        wanted = await self._read_options(question, options, deadline_ms)
        with self._choose_version(request_id or question) as choice:
            async with aclosing(self._executor.stream(question, **wanted)) as events:
                async for event in events:
                    if event.kind == "finished":
                        event.changes["versions"] = {**event.changes.get("versions", {}), **choice.versions()}
                    yield event

    def _choose_version(self, request: str) -> AbstractContextManager[Choice]:
        """The release's version, or that of an endpoint, "": only its replies tell what it is."""
        return use_choice(Choice(request=request)) if self.planner else self._traffic.route_question(request)

    async def _read_options(self, question: str, options: str, deadline_ms: object) -> dict[str, Any]:
        """What the options say; a trace of 4 MB takes 50 ms to read. Raises DeadlineExceeded and InvalidRequest,
        also for a question that is too long."""
        self.limits.check_question(question)
        seconds = self.seconds_allowed(deadline_ms)
        try:
            async with asyncio.timeout(seconds):
                return await offload(len(options), partial(self._parse, options, deadline_ms))
        except TimeoutError as error:
            raise DeadlineExceeded(f"the options were not read within {seconds * 1000:g} ms") from error

    def _parse(self, options: str, deadline_ms: object) -> dict[str, Any]:
        wanted = read_options(options, self.limits.options_bytes)
        wanted["limits"] = self.limits.lowered(wanted.pop("limits", {}))
        if "reuse" in wanted:
            wanted["reuse"] = read_trace(wanted["reuse"])
        if "history" in wanted:
            wanted["history"] = read_history(wanted["history"])
        return {**wanted, "deadline_ms": _read_milliseconds(deadline_ms)}

    def _report_finish(self, trace: Trace) -> None:
        self._on_finish(replace(trace, versions={**trace.versions, **current_choice().versions()}))


def _read_milliseconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidRequest(f"deadline_ms must be a number of milliseconds, not {value!r:.60}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = -1.0
    if not 0 < number < float("inf"):
        raise InvalidRequest(f"deadline_ms must be a positive number of milliseconds, not {value!r:.60}")
    return number
