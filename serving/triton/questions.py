"""The executor behind its Triton model: a request's strings in, a trace out."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import ValidationError, from_json

from revelator.errors import DataError, InvalidRequest
from revelator.trace import Trace
from revelator.trace_events import Event
from serving.executor import Executor, Limits
from serving.executor.limits import ANSWER_CHARACTERS, ANSWERS
from serving.knowledge.strategy import AtomicStrategy
from serving.protocols import Revelator
from serving.triton.cache import AnswerCache
from serving.triton.lives import Lives
from serving.triton.remote import RemoteGenerator, RemoteRetriever, RemoteRevelator, TritonModels
from serving.triton.routing import RoutedRevelator
from serving.triton.secrets import INNER, secret
from serving.triton.traffic import Traffic, current
from serving.triton.vllm import VllmRevelator, served


@dataclass
class _Detail:
    """What is read of the details of an earlier trace's nodes."""

    key: str = ""
    ids: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    count: int = 0


_TRACE, _DETAIL = TypeAdapter(Trace), TypeAdapter(_Detail)

SMALL_OPTIONS = 4_096  # characters that are read on the event loop, in less than a millisecond
REUSED_NODES = 2_000  # of an earlier trace: 32 leaves, each asked for 8 values, on a chain of some stages

OPTIONS = {"plan": str, "strategy": str, "limits": dict, "reuse": dict}


class Questions:
    """Answers questions with the three other models of the server at `url`.

    `sources` names the knowledge sources of the strategy `atomic`; without it, trees run over the served retriever.
    What is promoted below `home` answers (`serving.triton.traffic`), or `vllm`, the version folder of the model
    `revelator_vllm`, which then plans in place of `revelator`. `cache` keeps answers; events are always new. `limits`
    is JSON that lowers the executor's own; `ended` is called with each trace once it is whole.
    """

    def __init__(
        self,
        url: str,
        home: Path,
        sources: Path | None = None,
        vllm: Path | None = None,
        cache: AnswerCache | None = None,
        limits: str = "",
        ended: Callable[[Trace], object] = lambda trace: None,
    ) -> None:
        self.url = url
        self.home = home
        self.sources = sources
        self.vllm = vllm
        self.cache = cache
        self.limits = Limits().lowered(json.loads(limits or "{}"))
        self._ended = ended
        self._traffic = Traffic(home)

    @classmethod
    def configured(
        cls,
        home: Path,
        parameters: Mapping[str, str],
        ended: Callable[[Trace], object],
        cache: AnswerCache | None = None,
    ) -> Questions:
        """As the `parameters` of a config.pbtxt say, with the models of the server that started this process."""
        sources, vllm = (Path(parameters[name]) if parameters.get(name) else None for name in ("sources", "vllm"))
        return cls(os.environ["REVELATOR_GRPC"], home, sources, vllm, cache, parameters.get("limits", ""), ended)

    async def open(self, stack: AsyncExitStack) -> None:
        models = await stack.enter_async_context(TritonModels(self.url, secret(self.home, INNER)))
        planner: Revelator = VllmRevelator(models, served(self.vllm)) if self.vllm else self._routed(models, stack)
        services = planner, RemoteRetriever(models), RemoteGenerator(models, Lives("generator"))
        atomic = AtomicStrategy.open(self.sources, services[1])
        stack.push_async_callback(atomic.close)
        logical = RemoteRetriever(models, "logic")
        self._executor = Executor(*services, self.limits, atomic=atomic, logical=logical, ended=self._finished)

    def _routed(self, models: TritonModels, stack: AsyncExitStack) -> RoutedRevelator:
        revelator = RoutedRevelator(RemoteRevelator(models), self.home)
        stack.push_async_callback(revelator.close)
        return revelator

    def allowed(self, deadline_ms: object) -> float:
        """Seconds in which a question must end. Raises InvalidRequest."""
        return min(_milliseconds(deadline_ms) or self.limits.deadline_ms, self.limits.deadline_ms) / 1000

    async def answer(self, question: str, options: str, deadline_ms: object, request_id: str = "") -> Trace:
        """One question's trace. Raises InvalidRequest for options or a deadline that are not what they should be."""
        wanted = await self._wanted(options, deadline_ms)
        with self._traffic.question(request_id or question) as choice:
            if self.cache and (kept := self.cache.find(question, options, choice.version)):
                return kept
            trace = await self._executor.run(question, **wanted)
        trace = replace(trace, versions={**trace.versions, **choice.versions()})
        if self.cache:
            self.cache.keep(question, options, choice.version, trace)
        return trace

    async def stream(
        self, question: str, options: str, deadline_ms: object, request_id: str = ""
    ) -> AsyncGenerator[Event, None]:
        """The same question's events, each when it happens. Closing the generator cancels the question."""
        with self._traffic.question(request_id or question) as choice:
            wanted = await self._wanted(options, deadline_ms)
            async with aclosing(self._executor.stream(question, **wanted)) as events:
                async for event in events:
                    if event.kind == "finished":
                        event.changes["versions"] = {**event.changes.get("versions", {}), **choice.versions()}
                    yield event

    async def _wanted(self, options: str, deadline_ms: object) -> dict[str, Any]:
        """What the options say. An earlier trace takes milliseconds to read, and so a thread of its own."""
        if len(options) > SMALL_OPTIONS:
            return await asyncio.to_thread(self._read, options, deadline_ms)
        return self._read(options, deadline_ms)

    def _read(self, options: str, deadline_ms: object) -> dict[str, Any]:
        wanted = read_options(options, self.limits.options_bytes)
        wanted["limits"] = self.limits.lowered(wanted.pop("limits", {}))
        if "reuse" in wanted:
            wanted["reuse"] = read_trace(wanted["reuse"])
        return {**wanted, "deadline_ms": _milliseconds(deadline_ms)}

    def _finished(self, trace: Trace) -> None:
        self._ended(replace(trace, versions={**trace.versions, **current().versions()}))


def read_options(text: str, most_bytes: int) -> dict[str, Any]:
    """`plan`, `strategy`, `limits` and `reuse` from JSON; an empty text has none of them. Raises InvalidRequest."""
    if len(text) > most_bytes or len(text.encode()) > most_bytes:
        raise InvalidRequest(f"the options are too large; the limit options_bytes is {most_bytes}")
    try:
        value = from_json(text or "{}")  # unlike json.loads it refuses what is nested too deep, and lone surrogates
    except ValueError as error:
        raise InvalidRequest(f"the options are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the options must be a JSON object", hint=f"with any of {', '.join(OPTIONS)}")
    for name, given in value.items():
        if name not in OPTIONS:
            raise InvalidRequest(f"there is no option {name!r}", hint=f"options are {', '.join(OPTIONS)}")
        if given is not None and not isinstance(given, OPTIONS[name]):
            raise InvalidRequest(f"option {name} must be a JSON {OPTIONS[name].__name__}, not {given!r}")
    return {name: given for name, given in value.items() if given is not None}


def read_trace(value: dict[str, Any]) -> Trace:
    """The earlier trace of a request. Raises InvalidRequest."""
    nodes = value.get("nodes")
    if isinstance(nodes, list) and len(nodes) > REUSED_NODES:
        raise InvalidRequest(f"option reuse: the trace has {len(nodes)} nodes; at most {REUSED_NODES} are read")
    try:
        Trace.from_json(value)  # the schema, and that it is a trace at all
        trace = _TRACE.validate_python(value)
        for node in trace.nodes:
            _DETAIL.validate_python(node.detail)
            size = sum(map(len, node.answers))
            if len(node.answers) > ANSWERS or size > ANSWER_CHARACTERS:
                what = f"{len(node.answers)} answers of {size} characters"
                most = f"at most {ANSWERS} of {ANSWER_CHARACTERS} are taken"
                raise InvalidRequest(f"option reuse: node {node.id} has {what}; {most}")
        return trace
    except DataError as error:
        raise InvalidRequest(f"option reuse: {error.message}", hint=error.hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidRequest(f"option reuse: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _milliseconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidRequest(f"deadline_ms must be a number of milliseconds, not {value!r}")
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise InvalidRequest(f"deadline_ms must be a positive number of milliseconds, not {value!r}")
    return number
