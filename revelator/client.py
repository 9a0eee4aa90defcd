"""Ask a served executor: `Client` blocks, `AsyncClient` awaits; both give a typed answer with its trace.

    with Client("127.0.0.1:8001") as client:
        print(client.ask("Who founded the company that distributed UHF?").answer)

A call that is given up (a timeout, a cancelled task or future, Ctrl-C) is cancelled on the server too. Errors are those
of `revelator.errors`: ExpressionError and PlanError for a plan that cannot be run, InvalidRequest, Overloaded,
Unavailable, DeadlineExceeded, Cancelled, and ServingError for a fault of the server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from revelator._wire import read_error
from revelator.errors import DeadlineExceeded, RevelatorError, Unavailable
from revelator.trace import Outcome, Trace

DEFAULT_URL = "127.0.0.1:8001"
MODEL = "executor"


@dataclass(frozen=True)
class Answer:
    """`answer` is the final text, `answers` its single values; `outcome` "partial" means that a part failed."""

    answer: str
    answers: tuple[str, ...]
    outcome: Outcome
    trace: Trace


class Client:
    """Blocking client of the server at `url` (gRPC, host:port). `timeout` is in seconds and bounds each call."""

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0) -> None:
        self.url = url
        self.timeout = timeout
        self._client = grpc_client.InferenceServerClient(url)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def ask(
        self,
        question: str,
        plan: str | None = None,
        strategy: str = "auto",
        deadline_ms: float | None = None,
        limits: Mapping[str, float] | None = None,
        reuse: Trace | None = None,
    ) -> Answer:
        """Answers one question. `plan` is an expression to run instead of the model's own; the server stops working on
        it after `deadline_ms` and answers with what it has by then. What a leaf asks that was asked and answered in the
        trace `reuse` is taken from there."""
        future = self.submit(question, plan, strategy, deadline_ms, limits, reuse)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def submit(
        self,
        question: str,
        plan: str | None = None,
        strategy: str = "auto",
        deadline_ms: float | None = None,
        limits: Mapping[str, float] | None = None,
        reuse: Trace | None = None,
    ) -> Future[Answer]:
        """Like `ask`, without waiting. Cancelling the future cancels the work on the server."""
        future: Future[Answer] = Future()

        def done(result: Any, error: InferenceServerException | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is not None:
                future.set_exception(_our_error(self.url, error))
            else:
                future.set_result(_answer(result))

        call = self._client.async_infer(
            MODEL,
            _inputs(question, plan, strategy, limits, reuse),
            done,
            parameters=_parameters(deadline_ms),
            client_timeout=_seconds(self.timeout, deadline_ms),
        )
        future.add_done_callback(lambda future: call.cancel() if future.cancelled() else None)
        return future


class AsyncClient:
    """The same for asyncio. Cancelling the task that awaits an answer cancels the work on the server."""

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0) -> None:
        self.url = url
        self.timeout = timeout
        self._client = aio_client.InferenceServerClient(url)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def ask(
        self,
        question: str,
        plan: str | None = None,
        strategy: str = "auto",
        deadline_ms: float | None = None,
        limits: Mapping[str, float] | None = None,
        reuse: Trace | None = None,
    ) -> Answer:
        """As `Client.ask`."""
        try:
            result = await self._client.infer(
                MODEL,
                _inputs(question, plan, strategy, limits, reuse),
                parameters=_parameters(deadline_ms),
                client_timeout=_seconds(self.timeout, deadline_ms),
            )
        except InferenceServerException as error:
            raise _our_error(self.url, error) from error
        return _answer(result)


def _inputs(
    question: str, plan: str | None, strategy: str, limits: Mapping[str, float] | None, reuse: Trace | None
) -> list[grpc_client.InferInput]:
    earlier = reuse.to_json() if reuse else None
    options = {"plan": plan, "strategy": strategy, "limits": dict(limits or {}), "reuse": earlier}
    inputs = []
    for name, text in (("question", question), ("options", json.dumps(options, ensure_ascii=False))):
        tensor = grpc_client.InferInput(name, [1], "BYTES")
        inputs.append(tensor.set_data_from_numpy(np.array([text.encode()], dtype=np.object_)))
    return inputs


def _parameters(deadline_ms: float | None) -> dict[str, int] | None:
    return None if deadline_ms is None else {"deadline_ms": math.ceil(deadline_ms)}


def _seconds(timeout: float, deadline_ms: float | None) -> float:
    """A call may last as long as the server was given, and the time that its answer needs to travel."""
    return timeout if deadline_ms is None else max(timeout, deadline_ms / 1000 + 1)


def _answer(result: grpc_client.InferResult) -> Answer:
    trace = Trace.from_json(json.loads(result.as_numpy("trace")[0]))
    return Answer(result.as_numpy("answer")[0].decode(), tuple(trace.answers), trace.outcome, trace)


def _our_error(url: str, error: InferenceServerException) -> RevelatorError:
    code = (error.status() or "").removeprefix("StatusCode.")
    found = read_error(code, error.message())
    if found.where is None and type(found) is Unavailable:
        hint = found.hint or "is it running? start it with `revelator serve`"
        return Unavailable(found.message, where=url, hint=hint)
    if found.where is None and type(found) is DeadlineExceeded:
        return DeadlineExceeded(
            found.message, where=url, hint=found.hint or "allow more time, or ask a simpler question"
        )
    return found
