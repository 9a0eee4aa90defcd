"""Ask a served executor: `Client` blocks, `AsyncClient` awaits; both give a typed answer with its trace.

    with Client("127.0.0.1:8001") as client:
        print(client.ask("What is the extension of the head of the Flume Laboratory?").answer)

    async with AsyncClient("127.0.0.1:8001") as client:
        async for event in client.stream("What is the extension of the head of the Flume Laboratory?"):
            print(event.kind, event.node, event.changes)

A call that is given up (a timeout, a cancelled task or future, Ctrl-C) is cancelled on the server too. Errors are those
of `revelator.errors`: ExpressionError and PlanError for a plan that cannot be run, InvalidRequest, Overloaded,
Unavailable, DeadlineExceeded, Cancelled, and ServingError for a fault of the server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar, Unpack

import grpc
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from revelator import spans
from revelator.channels import Headers, Tls, make_channel_arguments, read_token
from revelator.errors import Cancelled, RevelatorError
from revelator.retries import Attempts
from revelator.trace import Event
from revelator.wire import (
    DAY,
    Answer,
    Options,
    build_request,
    check_bounds,
    read_answer,
    read_event,
    read_failure,
    shorten_request,
)

DEFAULT_URL = "127.0.0.1:8001"
LARGE_BYTES = 200_000  # of a trace: reading megabytes on the event loop would stop it for tens of milliseconds

Result = TypeVar("Result")

__all__ = ["DEFAULT_URL", "Answer", "AsyncClient", "Client", "Options"]


class AsyncClient:
    """Client of the server at `url` (gRPC, host:port) for asyncio. `timeout` (seconds) is the deadline of every
    question, retries included: the server answers by then with what it has, and the client waits a second longer. The
    server's own deadline holds where it is shorter, and without a timeout. A question's `deadline_ms` takes the place
    of the timeout; if that is longer, it still bounds the retries. Give `tls` where the server speaks it (default: as
    the environment says, `revelator.channels`), and `token` where it asks for one (default: REVELATOR_TOKEN).
    Cancelling the task that awaits an answer cancels the work on the server.

    A question that met a server which was full or not there is sent again, at most `retries` times and within the
    timeout (`revelator.retries`).
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        timeout: float | None = None,
        retries: int = 0,
        tls: Tls | None = None,
        token: str | None = None,
    ) -> None:
        self.url = url
        self.timeout = None if timeout is None else check_bounds("timeout", timeout, DAY)
        self.retries = retries
        self.tls = tls
        self._client = aio_client.InferenceServerClient(**make_channel_arguments(url, tls or Tls.from_environment()))
        spans.start("revelator-client")
        self._client.register_plugin(Headers(token or read_token()))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question. Raises the errors listed in the module's docstring."""
        request = await self._build_request(question, options)
        attempts = Attempts(self.retries, request["client_timeout"])
        while True:
            try:
                with spans.open_span("ask", "client"):
                    answer = await self.ask_once(request)
                    spans.describe_root(answer.trace)
                    return answer
            except RevelatorError as error:
                await asyncio.sleep(attempts.choose_pause(error))
            shorten_request(request, attempts.seconds)

    async def _build_request(self, question: str, options: Options) -> dict[str, Any]:
        """In a thread where an earlier trace goes along: one of megabytes takes tens of milliseconds to write."""
        build = partial(build_request, question, self.timeout, **options)
        return await asyncio.to_thread(build) if options.get("reuse") else build()

    async def ask_once(self, request: dict[str, Any]) -> Answer:
        """Sends a request of `revelator.wire.build_request`, without a retry."""
        result = await self.send(request)
        is_large = len(result.as_numpy("trace")[0]) > LARGE_BYTES
        return await asyncio.to_thread(read_answer, result) if is_large else read_answer(result)

    async def send(self, request: dict[str, Any]) -> Any:
        """Returns the executor's reply to a request, as tensors. Raises what `ask` raises."""
        try:
            return await self._client.infer(**request)
        except InferenceServerException as error:
            raise read_failure(error, self.url, request["client_timeout"]) from error

    async def stream(self, question: str, **options: Unpack[Options]) -> AsyncGenerator[Event, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        `revelator.trace.Replay` makes the trace of them as they come. Leaving the loop cancels the work on the
        server: at once with `contextlib.aclosing`, else when the generator is collected. It is sent again only while no
        event has come.
        """
        request = await self._build_request(question, options)
        attempts = Attempts(self.retries, request["client_timeout"])
        begun = False
        while True:
            try:
                async with aclosing(self._events(request)) as events:
                    async for event in events:
                        begun = True
                        yield event
                return
            except RevelatorError as error:
                if begun:
                    raise
                await asyncio.sleep(attempts.choose_pause(error))
            shorten_request(request, attempts.seconds)

    async def _events(self, request: dict[str, Any]) -> AsyncGenerator[Event, None]:
        timeout = request["client_timeout"]
        asked = {name: value for name, value in request.items() if name != "client_timeout"}
        answers = self._client.stream_infer(_once(asked), stream_timeout=timeout)
        try:
            async for result, error in answers:
                if error is not None:
                    raise read_failure(error, self.url, timeout)
                yield read_event(result)
        except grpc.RpcError as error:
            status = InferenceServerException(error.details(), str(error.code()))
            raise read_failure(status, self.url, timeout) from error
        finally:
            answers.cancel()


class Client:
    """The same for programs that block: an `AsyncClient` whose event loop runs in a thread of its own. Several threads
    may use one client at the same time. `submit` sends a question once, whatever `retries` says."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        timeout: float | None = None,
        retries: int = 0,
        tls: Tls | None = None,
        token: str | None = None,
    ) -> None:
        async def connect() -> AsyncClient:
            return AsyncClient(url, timeout, retries, tls, token)

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="revelator client", daemon=True)
        self._thread.start()
        try:
            self._client = self._wait(connect())
        except BaseException:
            self._end_loop()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the client's calls and its thread."""
        if not self._loop.is_closed():
            self._wait(self._end_calls())
            self._end_loop()

    def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question. Raises the errors listed in the module's docstring."""
        return self._wait(self._client.ask(question, **options))

    def submit(self, question: str, **options: Unpack[Options]) -> Future[Answer]:
        """Like `ask`, without waiting. Cancelling the future cancels the work on the server."""
        request = build_request(question, self._client.timeout, **options)
        return asyncio.run_coroutine_threadsafe(self._client.ask_once(request), self._loop)

    def stream(self, question: str, **options: Unpack[Options]) -> Generator[Event, None, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        Closing the generator (or leaving the loop that alone holds it) cancels the work on the server. The question is
        sent again only while no event has come.
        """
        events = self._client.stream(question, **options)

        async def wait_for_event() -> Event | None:
            return await anext(events, None)

        try:
            while event := self._wait(wait_for_event()):
                yield event
        finally:
            if not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(events.aclose(), self._loop)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Cancelled("the client was closed before there was an answer", where=self._client.url) from None
        except BaseException:  # Ctrl-C among them
            future.cancel()
            raise

    async def _end_calls(self) -> None:
        await self._client.close()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _once(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request
