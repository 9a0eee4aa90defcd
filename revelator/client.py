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
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from concurrent.futures import Future
from contextlib import aclosing, closing
from queue import Empty, SimpleQueue
from typing import Any, Unpack

import grpc
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from revelator import spans
from revelator._calls import DAY, Answer, Options, answer_of, bounded, event_of, our_error, request_of
from revelator.channel import Tls, channel
from revelator.errors import DeadlineExceeded, ServingError
from revelator.retries import Attempts
from revelator.trace_events import Event

DEFAULT_URL = "127.0.0.1:8001"
STREAM_MODEL = "executor_stream"

Arrived = tuple[grpc_client.InferResult | None, InferenceServerException | None]

__all__ = ["DEFAULT_URL", "Answer", "AsyncClient", "Client", "Options"]


class Client:
    """Blocking client of the server at `url` (gRPC, host:port). `timeout` is in seconds and bounds each call; `tls`
    where the server speaks it (default: as the environment says, `revelator.channel`).

    A question that met a server which was full or not there is put again, at most `retries` times and within the
    timeout (`revelator.retries`). `submit` puts a question once.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0, retries: int = 0, tls: Tls | None = None) -> None:
        self.url = url
        self.timeout = bounded("timeout", timeout, DAY)
        self.retries = retries
        self.tls = tls
        self._client = grpc_client.InferenceServerClient(**channel(url, tls))
        _trace(self._client)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question."""
        request = request_of(question, self.timeout, **options)
        attempts = Attempts(self.retries, request["client_timeout"])
        while True:
            try:
                with spans.span("ask", "client"):
                    return answer_of(self._client.infer(**request))
            except InferenceServerException as error:
                found = our_error(error, self.url, request["client_timeout"])
                time.sleep(attempts.pause(found))
            request["client_timeout"] = attempts.seconds

    def submit(self, question: str, **options: Unpack[Options]) -> Future[Answer]:
        """Like `ask`, without waiting. Cancelling the future cancels the work on the server."""
        return self._submit(request_of(question, self.timeout, **options))

    def _submit(self, request: dict[str, Any]) -> Future[Answer]:
        future: Future[Answer] = Future()
        timeout = request["client_timeout"]

        def done(result: Any, error: InferenceServerException | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if error is not None:
                future.set_exception(our_error(error, self.url, timeout))
            else:
                future.set_result(answer_of(result))

        call = self._client.async_infer(callback=done, **request)
        future.add_done_callback(lambda future: call.cancel() if future.cancelled() else None)
        return future

    def stream(self, question: str, **options: Unpack[Options]) -> Generator[Event, None, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        Closing the generator (or leaving the loop that alone holds it) cancels the work on the server. It is put again
        only while no event has come.
        """
        request = request_of(question, self.timeout, **options)
        attempts = Attempts(self.retries, request["client_timeout"])
        begun = False
        while True:
            try:
                with closing(self._events(request)) as events:
                    for event in events:
                        begun = True
                        yield event
                return
            except ServingError as error:
                if begun:
                    raise
                time.sleep(attempts.pause(error))
            request["client_timeout"] = attempts.seconds

    def _events(self, request: dict[str, Any]) -> Generator[Event, None, None]:
        """One attempt, on a channel of its own: tritonclient has one stream a client."""
        timeout = request["client_timeout"]
        asked = {name: value for name, value in request.items() if name != "client_timeout"}
        arrived: SimpleQueue[Arrived] = SimpleQueue()
        client = grpc_client.InferenceServerClient(**channel(self.url, self.tls))
        _trace(client)
        client.start_stream(lambda result, error: arrived.put((result, error)), stream_timeout=timeout)
        try:
            client.async_stream_infer(**{**asked, "model_name": STREAM_MODEL})
            kind = None
            while kind != "finished":
                result, error = _next(arrived, timeout)
                if error is not None:
                    raise our_error(error, self.url, timeout)
                event = event_of(result)
                kind = event.kind
                yield event
        finally:
            client.stop_stream(cancel_requests=True)
            client.close()


def _next(arrived: SimpleQueue[Arrived], timeout: float) -> Arrived:
    try:
        return arrived.get(timeout=timeout + 1)  # tritonclient says nothing of a stream that the server just ended
    except Empty:
        raise DeadlineExceeded(f"no event within {timeout:g} s") from None


class AsyncClient:
    """The same for asyncio. Cancelling the task that awaits an answer cancels the work on the server."""

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0, retries: int = 0, tls: Tls | None = None) -> None:
        self.url = url
        self.timeout = bounded("timeout", timeout, DAY)
        self.retries = retries
        self.tls = tls
        self._client = aio_client.InferenceServerClient(**channel(url, tls))
        _trace(self._client)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question."""
        request = request_of(question, self.timeout, **options)
        attempts = Attempts(self.retries, request["client_timeout"])
        while True:
            try:
                with spans.span("ask", "client"):
                    return answer_of(await self._client.infer(**request))
            except InferenceServerException as error:
                found = our_error(error, self.url, request["client_timeout"])
                await asyncio.sleep(attempts.pause(found))
            request["client_timeout"] = attempts.seconds

    async def stream(self, question: str, **options: Unpack[Options]) -> AsyncGenerator[Event, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        `revelator.trace_events.Replay` makes the trace of them as they come. Leaving the loop cancels the work on the
        server: at once with `contextlib.aclosing`, else when the generator is collected. It is put again only while no
        event has come.
        """
        request = request_of(question, self.timeout, **options)
        attempts = Attempts(self.retries, request["client_timeout"])
        begun = False
        while True:
            try:
                async with aclosing(self._events(request)) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except ServingError as error:
                if begun:
                    raise
                await asyncio.sleep(attempts.pause(error))
            request["client_timeout"] = attempts.seconds

    async def _events(self, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        timeout = request["client_timeout"]
        asked = {name: value for name, value in request.items() if name != "client_timeout"}
        call = self._client.stream_infer(_once({**asked, "model_name": STREAM_MODEL}), stream_timeout=timeout)
        try:
            async for result, error in call:
                if error is not None:
                    raise our_error(error, self.url, timeout)
                yield event_of(result)
        except grpc.RpcError as error:
            status = InferenceServerException(error.details(), str(error.code()))
            raise our_error(status, self.url, timeout) from error
        finally:
            call.cancel()


def _trace(client: Any) -> None:
    """Where spans are asked for, calls carry the current one with them."""
    spans.start("revelator-client")
    if spans.are_on():
        client.register_plugin(spans.Traced())


async def _once(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request
