"""Ask a served executor: `Client` blocks, `AsyncClient` awaits; both give a typed answer with its trace.

    with Client("127.0.0.1:8001") as client:
        print(client.ask("Who founded the company that distributed UHF?").answer)

    async with AsyncClient("127.0.0.1:8001") as client:
        async for event in client.stream("Who founded the company that distributed UHF?"):
            print(event.kind, event.node, event.changes)

A call that is given up (a timeout, a cancelled task or future, Ctrl-C) is cancelled on the server too. Errors are those
of `revelator.errors`: ExpressionError and PlanError for a plan that cannot be run, InvalidRequest, Overloaded,
Unavailable, DeadlineExceeded, Cancelled, and ServingError for a fault of the server.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import grpc
import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from revelator._wire import channel_arguments, read_error
from revelator.errors import DeadlineExceeded, InvalidRequest, Overloaded, RevelatorError, ServingError, Unavailable
from revelator.trace import Outcome, Trace
from revelator.trace_events import Event

DEFAULT_URL = "127.0.0.1:8001"
MODEL = "executor"
STREAM_MODEL = "executor_stream"
SHORTEST_PAUSE_MS = 100.0
DAY = 86_400  # seconds: the longest that a call may be waited for

_HINTS: dict[type[RevelatorError], str | None] = {
    Unavailable: "is it running, and is this its gRPC address (host:port)? `revelator serve` starts one and prints it",
    DeadlineExceeded: "allow more time, or ask a simpler question",
    ServingError: None,
}


@dataclass(frozen=True)
class Answer:
    """`answer` is the final text, `answers` its single values; `outcome` "partial" means that a part failed."""

    answer: str
    answers: tuple[str, ...]
    outcome: Outcome
    trace: Trace


class Options(TypedDict, total=False):
    """What a question may be asked with."""

    plan: str | None  # an expression to run instead of the model's own
    strategy: str  # auto (as the model says), direct, single, compound, compile, atomic, logic or iterate
    deadline_ms: float | None  # the server ends its work by then, and answers with what it has
    limits: Mapping[str, float] | None  # of serving.executor.Limits: lower ones than the server's own
    reuse: Trace | None  # an earlier trace: what is asked again and was answered there is taken from it


class Client:
    """Blocking client of the server at `url` (gRPC, host:port). `timeout` is in seconds and bounds each call.

    `ask` puts a question that was refused as Overloaded again, at most `retries` times, when the server said that it
    may be.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0, retries: int = 0) -> None:
        self.url = url
        self.timeout = _bounded("timeout", timeout, DAY)
        self.retries = retries
        self._client = grpc_client.InferenceServerClient(url, channel_args=channel_arguments(url))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question."""
        for _ in range(self.retries):
            try:
                return self._ask(question, **options)
            except Overloaded as error:
                time.sleep(_pause(error))
        return self._ask(question, **options)

    def _ask(self, question: str, **options: Unpack[Options]) -> Answer:
        future = self.submit(question, **options)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def submit(self, question: str, **options: Unpack[Options]) -> Future[Answer]:
        """Like `ask`, without waiting. Cancelling the future cancels the work on the server."""
        future: Future[Answer] = Future()
        request = _request(question, self.timeout, **options)

        def done(result: Any, error: InferenceServerException | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is not None:
                future.set_exception(_our_error(error, self.url, request["client_timeout"]))
            else:
                future.set_result(_answer(result))

        call = self._client.async_infer(callback=done, **request)
        future.add_done_callback(lambda future: call.cancel() if future.cancelled() else None)
        return future


class AsyncClient:
    """The same for asyncio. Cancelling the task that awaits an answer cancels the work on the server."""

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0, retries: int = 0) -> None:
        self.url = url
        self.timeout = _bounded("timeout", timeout, DAY)
        self.retries = retries
        self._client = aio_client.InferenceServerClient(url, channel_args=channel_arguments(url))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question."""
        for _ in range(self.retries):
            try:
                return await self._ask(question, **options)
            except Overloaded as error:
                await asyncio.sleep(_pause(error))
        return await self._ask(question, **options)

    async def _ask(self, question: str, **options: Unpack[Options]) -> Answer:
        request = _request(question, self.timeout, **options)
        try:
            return _answer(await self._client.infer(**request))
        except InferenceServerException as error:
            raise _our_error(error, self.url, request["client_timeout"]) from error

    async def stream(self, question: str, **options: Unpack[Options]) -> AsyncGenerator[Event, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        `revelator.trace_events.Replay` makes the trace of them as they come. Leaving the loop cancels the work on the
        server: at once with `contextlib.aclosing`, else when the generator is collected.
        """
        request = _request(question, self.timeout, **options)
        timeout = request.pop("client_timeout")
        call = self._client.stream_infer(_once({**request, "model_name": STREAM_MODEL}), stream_timeout=timeout)
        try:
            async for result, error in call:
                if error is not None:
                    raise _our_error(error, self.url, timeout)
                yield Event.from_json(json.loads(result.as_numpy("event")[0]))
        except grpc.RpcError as error:
            status = InferenceServerException(error.details(), str(error.code()))
            raise _our_error(status, self.url, timeout) from error
        finally:
            call.cancel()


async def _once(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request


def _request(
    question: str,
    timeout: float,
    plan: str | None = None,
    strategy: str = "auto",
    deadline_ms: float | None = None,
    limits: Mapping[str, float] | None = None,
    reuse: Trace | None = None,
) -> dict[str, Any]:
    """The arguments of `infer`. Raises InvalidRequest for what cannot be sent.

    A call may last as long as the server was given, and the time that its answer needs to travel.
    """
    earlier = reuse.to_json() if reuse else None
    wanted = {"plan": plan, "strategy": strategy, "limits": dict(limits or {}), "reuse": earlier}
    options = _text("options", json.dumps(wanted, ensure_ascii=False))
    request = {"model_name": MODEL, "inputs": [_text("question", question), options]}
    if deadline_ms is None:
        return {**request, "client_timeout": timeout}
    deadline_ms = math.ceil(_bounded("deadline_ms", deadline_ms, 1000 * DAY))
    return {
        **request,
        "parameters": {"deadline_ms": deadline_ms},
        "client_timeout": max(timeout, deadline_ms / 1000 + 1),
    }


def _text(name: str, text: str) -> grpc_client.InferInput:
    try:
        value = np.array([text.encode()], dtype=np.object_)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"not a text: {error.reason} at character {error.start}", where=name) from error
    return grpc_client.InferInput(name, [1], "BYTES").set_data_from_numpy(value)


def _pause(error: Overloaded) -> float:
    """Seconds: what the server asked for, and up to as much again, so that many who were refused come one by one."""
    return (error.retry_after_ms or SHORTEST_PAUSE_MS) / 1000 * random.uniform(1.0, 2.0)


def _bounded(name: str, value: float, most: float) -> float:
    if not 0 < value <= most:
        raise InvalidRequest(f"must be more than 0 and at most {most:,}, not {value:g}", where=name)
    return value


def _answer(result: grpc_client.InferResult) -> Answer:
    trace = Trace.from_json(json.loads(result.as_numpy("trace")[0]))
    return Answer(result.as_numpy("answer")[0].decode(), tuple(trace.answers), trace.outcome, trace)


def _our_error(error: InferenceServerException, url: str, timeout: float) -> RevelatorError:
    """The error that the server raised, or the one that never reached it, with the address and what to do."""
    code = (error.status() or "").removeprefix("StatusCode.")
    found = read_error(code, error.message())
    if code == "DEADLINE_EXCEEDED":  # never the server's word: it says CANCELLED, and DeadlineExceeded in the message
        found = DeadlineExceeded(f"no answer within {timeout:g} s")
    if found.where is None and type(found) in _HINTS:
        found.where, found.hint = url, found.hint or _HINTS[type(found)]
    return found
