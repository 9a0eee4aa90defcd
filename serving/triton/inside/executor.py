"""The models `executor` and `executor_stream`: questions in; answers and traces out, or each event when it happens."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from revelator.minilm import read_vocabulary
from revelator.trace import Trace
from serving.executor.executor import Executor
from serving.executor.trees import NoModel
from serving.latency import write_json
from serving.models.comparisons import CanaryRevelator
from serving.models.releases import Traffic, VersionChoice, find_choice, read_release, use_choice
from serving.models.triton import RemoteGenerator, RemoteRetriever, RemoteRevelator, TritonModels
from serving.models.vllm import MODEL as VLLM
from serving.models.vllm import VllmRevelator, read_facts
from serving.models.vllm_server import ReleasedAdapter
from serving.protocols import Revelator
from serving.service.options import read_deadline, read_wanted
from serving.service.settings import choose_reader, open_knowledge, open_planner_and_judge
from serving.service.telemetry import Telemetry
from serving.triton.access import INNER, read_secret
from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import (
    make_response,
    make_strings,
    read_parameter,
    read_parameters,
    read_serving_config,
    read_text,
    send_last,
)
from serving.triton.inside.request_loop import Answer, RequestLoop


class TritonPythonModel:
    """Answers questions with the other models of the server, and with the endpoints that `ServingConfig` names.

    The release of the home folder answers (`serving.models.releases`). The parameter `revelator_vllm` of config.pbtxt
    names the version folder of that model, which then plans in place of `revelator`.
    """

    def initialize(self, args: dict[str, str]) -> None:
        self._config = read_serving_config(args)
        self._vllm = read_parameters(args).get(VLLM)
        self._home = Path(args["model_repository"]).parents[1]
        self._streams = args["model_name"] == "executor_stream"
        self._limits = self._config.executor_limits
        self._traffic = Traffic(self._home)
        self._telemetry = Telemetry(args["model_name"])
        self._admission = Admission(self._config.max_in_flight)
        self._loop = RequestLoop(
            self._open, self._admission, self._telemetry, self._seconds_allowed, self._reply_to_probe
        )

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        refusals = [self._loop.accept(request, self._begin) for request in requests]
        if not self._streams:
            return refusals
        for request, refusal in zip(requests, refusals, strict=True):
            if refusal:
                send_last(request.get_response_sender(), refusal)
        return None

    def finalize(self) -> None:
        self._loop.close()

    async def _open(self, stack: AsyncExitStack) -> None:
        await asyncio.to_thread(read_vocabulary)  # half a second, which the first question would wait
        url = os.environ["REVELATOR_GRPC"]
        models = await stack.enter_async_context(TritonModels(url, read_secret(self._home, INNER)))
        released = self._open_release(models, stack) if self._config.needs_release else NoModel()
        planner, judge = open_planner_and_judge(self._config, released, stack)
        retriever = RemoteRetriever(models)
        generator = choose_reader(self._config, RemoteGenerator(models), stack)
        sources = open_knowledge(self._config, retriever, generator, planner, stack)
        stack.callback(asyncio.create_task(self._admission.watch_cores()).cancel)
        self._executor = Executor(
            planner,
            sources,
            generator,
            self._limits,
            judge=judge,
            writing=self._config.writing,
            on_finish=self._record_finish,
            turn=self._admission.turn,
        )

    def _open_release(self, models: TritonModels, stack: AsyncExitStack) -> Revelator:
        """The engine of the release is read once: a deploy changes it only while no server runs."""
        if self._vllm:
            return VllmRevelator(models, read_facts(Path(self._vllm)))
        release = read_release(self._home)
        released: Revelator = RemoteRevelator(models)
        if release and release.vllm:
            released = ReleasedAdapter(release.vllm, self._config.timeout)
            stack.push_async_callback(released.close)
        compared = CanaryRevelator(released, self._home)
        stack.push_async_callback(compared.close)
        return compared

    def _seconds_allowed(self, request: Any) -> float:
        return min(_read_deadline(request) or math.inf, self._limits.deadline_ms) / 1000

    def _reply_to_probe(self, text: str) -> Any:
        if self._streams:
            return make_response(event=make_strings(text))
        return make_response(answer=make_strings(text), trace=make_strings(""))

    def _begin(self, request: Any) -> Answer:
        question, options = read_text(request, "question"), read_text(request, "options")
        asked = question, options, _read_deadline(request), request.request_id() or question
        return self._stream(*asked) if self._streams else self._answer(*asked)

    async def _answer(self, question: str, options: str, deadline_ms: float | None, request: str) -> Any:
        wanted = await read_wanted(question, options, deadline_ms, self._limits)
        with self._choose_version(request) as choice:
            trace = _add_versions(await self._executor.run(question, **wanted), choice)
        return make_response(
            answer=make_strings(trace.answer), trace=make_strings(await asyncio.to_thread(trace.dump_json))
        )

    async def _stream(
        self, question: str, options: str, deadline_ms: float | None, request: str
    ) -> AsyncGenerator[Any, None]:
        wanted = await read_wanted(question, options, deadline_ms, self._limits)
        with self._choose_version(request) as choice:
            async with aclosing(self._executor.stream(question, **wanted)) as events:
                async for event in events:
                    if event.kind == "finished":
                        event.changes["versions"] = {**event.changes.get("versions", {}), **choice.versions()}
                    yield make_response(event=make_strings(await write_json(event.to_json())))

    def _choose_version(self, request: str) -> AbstractContextManager[VersionChoice]:
        """The release's version, or "" where it neither plans nor judges: only replies tell what an endpoint is."""
        if not self._config.needs_release:
            return use_choice(VersionChoice(request=request))
        return self._traffic.choose_version(request)

    def _record_finish(self, trace: Trace) -> None:
        self._telemetry.record_trace(_add_versions(trace, find_choice()))


def _add_versions(trace: Trace, choice: VersionChoice) -> Trace:
    return replace(trace, versions={**trace.versions, **choice.versions()})


def _read_deadline(request: Any) -> float | None:
    return read_deadline(read_parameter(request, "deadline_ms"))
