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
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import Future
from contextlib import aclosing, closing, suppress
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Any, Unpack

import grpc
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from revelator import spans
from revelator.calls import (
    PROBE_EVERY,
    PROBE_TIMEOUT,
    Attempts,
    Call,
    OpenCalls,
    add_call_id,
    build_probe,
    make_death_error,
)
from revelator.endpoints import Tls, make_channel_arguments
from revelator.errors import DeadlineExceeded, ServingError, Unavailable
from revelator.trace import Event
from revelator.wire import (
    DAY,
    MODEL,
    Answer,
    Options,
    build_request,
    check_bounds,
    read_answer,
    read_event,
    read_failure,
)

DEFAULT_URL = "127.0.0.1:8001"
STREAM_MODEL = "executor_stream"
LARGE_BYTES = 200_000  # of a trace: beyond it an asynchronous client reads it beside the event loop

Arrived = tuple[grpc_client.InferResult | None, InferenceServerException | None]

__all__ = ["DEFAULT_URL", "Answer", "AsyncClient", "Client", "Options"]


class Client:
    """Blocking client of the server at `url` (gRPC, host:port). `timeout` is in seconds and bounds each call; `tls`
    where the server speaks it (default: as the environment says, `revelator.endpoints`).

    A question that met a server which was full or not there is put again, at most `retries` times and within the
    timeout (`revelator.calls`). `submit` puts a question once.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0, retries: int = 0, tls: Tls | None = None) -> None:
        self.url = url
        self.timeout = check_bounds("timeout", timeout, DAY)
        self.retries = retries
        self.tls = tls
        self._client = self._connect()  # of calls that block: another thread can end them by closing it alone
        self._submitting = self._connect()
        self._calls = OpenCalls()
        self._prober: threading.Thread | None = None
        self._lock = threading.Lock()  # of `_prober`

    def _connect(self) -> grpc_client.InferenceServerClient:
        client = grpc_client.InferenceServerClient(**make_channel_arguments(self.url, self.tls))
        _trace(client)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()
        self._submitting.close()

    def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question."""
        request = build_request(question, self.timeout, **options)
        attempts = Attempts(self.retries, request["client_timeout"])
        while True:
            try:
                with spans.span("ask", "client"):
                    return read_answer(self._infer(request))
            except InferenceServerException as error:
                found = read_failure(error, self.url, request["client_timeout"])
                time.sleep(attempts.pause(found))
            except Unavailable as error:
                time.sleep(attempts.pause(error))
            request["client_timeout"] = attempts.seconds

    def _infer(self, request: dict[str, Any]) -> Any:
        client = self._client
        call = self._begin(MODEL, lambda: self._abandon(client))
        try:
            return client.infer(**add_call_id(request, call))
        except InferenceServerException:
            if client is not self._client:
                raise make_death_error(self.url) from None
            raise
        finally:
            self._calls.finish(call)

    def _abandon(self, client: grpc_client.InferenceServerClient) -> None:
        """Ends all calls that block on `client`: they were put to the process that died."""
        if client is self._client:
            self._client = self._connect()
            client.close()

    def submit(self, question: str, **options: Unpack[Options]) -> Future[Answer]:
        """Like `ask`, without waiting. Cancelling the future cancels the work on the server."""
        return self._submit(build_request(question, self.timeout, **options))

    def _submit(self, request: dict[str, Any]) -> Future[Answer]:
        future: Future[Answer] = Future()
        timeout = request["client_timeout"]

        def done(result: Any, error: InferenceServerException | None) -> None:
            self._calls.finish(call)
            if not future.set_running_or_notify_cancel():
                return
            if call.died:
                future.set_exception(make_death_error(self.url))
            elif error is not None:
                future.set_exception(read_failure(error, self.url, timeout))
            else:
                future.set_result(read_answer(result))

        call = self._begin(MODEL, lambda: sent.cancel())
        try:
            sent = self._submitting.async_infer(callback=done, **add_call_id(request, call))
        except BaseException:
            self._calls.finish(call)
            raise
        future.add_done_callback(lambda future: sent.cancel() if future.cancelled() else None)
        return future

    def _begin(self, model: str, end: Callable[[], object]) -> Call:
        call = self._calls.begin(model, end)
        with self._lock:
            if self._prober is None:
                self._prober = threading.Thread(target=self._probe_while_calls_wait, name="probes", daemon=True)
                self._prober.start()
        return call

    def _probe_while_calls_wait(self) -> None:
        while True:
            time.sleep(PROBE_EVERY)
            with self._lock:
                if not self._calls:
                    self._prober = None
                    return
            for model, calls in self._calls.find_due().items():
                try:
                    self._calls.take_answer(calls, self._probe(model, calls))
                except InferenceServerException as error:
                    self._calls.take_failure(calls, error)
                except ValueError:  # the client is closed: its calls end with that
                    return

    def _probe(self, model: str, calls: list[Call]) -> str:
        probe = build_probe(model, calls)
        if model == MODEL:
            return self._submitting.infer(**probe, client_timeout=PROBE_TIMEOUT).as_numpy("answer")[0].decode()
        arrived: SimpleQueue[Arrived] = SimpleQueue()
        self._submitting.start_stream(lambda result, error: arrived.put((result, error)), stream_timeout=PROBE_TIMEOUT)
        try:
            self._submitting.async_stream_infer(**probe)
            result, error = _next(arrived, PROBE_TIMEOUT)
        finally:
            self._submitting.stop_stream()
        if result is None:
            raise error or InferenceServerException("no answer to a probe")
        return result.as_numpy("event")[0].decode()

    def stream(self, question: str, **options: Unpack[Options]) -> Generator[Event, None, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        Closing the generator (or leaving the loop that alone holds it) cancels the work on the server. The question is
        sent again only while no event has come.
        """
        request = build_request(question, self.timeout, **options)
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
        client = self._connect()
        client.start_stream(lambda result, error: arrived.put((result, error)), stream_timeout=timeout)
        call = self._begin(STREAM_MODEL, lambda: arrived.put((None, InferenceServerException("it died"))))
        ended = False
        try:
            client.async_stream_infer(**add_call_id(asked, call))
            while not ended:
                result, error = _next(arrived, timeout)
                if call.died:
                    raise make_death_error(self.url)
                if error is not None:
                    ended = True
                    raise read_failure(error, self.url, timeout)
                event = read_event(result)
                ended = event.kind == "finished"
                yield event
        finally:
            self._calls.finish(call)
            # A stream that has its last event is left to end: Triton before 25.04 can crash when it is cancelled then.
            client.stop_stream(cancel_requests=not ended)
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
        self.timeout = check_bounds("timeout", timeout, DAY)
        self.retries = retries
        self.tls = tls
        self._client = aio_client.InferenceServerClient(**make_channel_arguments(url, tls))
        self._calls = OpenCalls()
        self._probing: asyncio.Task[None] | None = None
        _trace(self._client)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._probing:
            self._probing.cancel()
        await self._client.close()

    async def ask(self, question: str, **options: Unpack[Options]) -> Answer:
        """Answers one question."""
        request = await _write_request(question, self.timeout, options)
        attempts = Attempts(self.retries, request["client_timeout"])
        while True:
            try:
                with spans.span("ask", "client"):
                    return await _read_answer(await self._infer(request))
            except InferenceServerException as error:
                found = read_failure(error, self.url, request["client_timeout"])
                await asyncio.sleep(attempts.pause(found))
            except Unavailable as error:
                await asyncio.sleep(attempts.pause(error))
            request["client_timeout"] = attempts.seconds

    async def _infer(self, request: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(None) as scope:
                call = self._begin(MODEL, lambda: scope.reschedule(0.0))
                try:
                    return await self._client.infer(**add_call_id(request, call))
                finally:
                    self._calls.finish(call)
        except TimeoutError:
            raise make_death_error(self.url) from None

    def _begin(self, model: str, end: Callable[[], object]) -> Call:
        call = self._calls.begin(model, end)
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe_while_calls_wait(), context=Context())  # of no call's span
        return call

    async def _probe_while_calls_wait(self) -> None:
        while self._calls:
            await asyncio.sleep(PROBE_EVERY)
            for model, calls in self._calls.find_due().items():
                try:
                    self._calls.take_answer(calls, await self._probe(model, calls))
                except InferenceServerException as error:
                    self._calls.take_failure(calls, error)

    async def _probe(self, model: str, calls: list[Call]) -> str:
        probe = build_probe(model, calls)
        if model == MODEL:
            return (await self._client.infer(**probe, client_timeout=PROBE_TIMEOUT)).as_numpy("answer")[0].decode()
        answers = self._client.stream_infer(_once(probe), stream_timeout=PROBE_TIMEOUT)
        try:
            arrived = [answer async for answer in answers]  # to the stream's end: see `_events`
        except grpc.RpcError as error:
            raise InferenceServerException(error.details(), str(error.code())) from error
        finally:
            answers.cancel()
        if not arrived:
            raise InferenceServerException("no answer to a probe")
        result, refusal = arrived[0]
        if refusal is not None:
            raise refusal
        return result.as_numpy("event")[0].decode()

    async def stream(self, question: str, **options: Unpack[Options]) -> AsyncGenerator[Event, None]:
        """The events of one question, each when it happens; the last is `finished`. Raises what `ask` raises.

        `revelator.trace.Replay` makes the trace of them as they come. Leaving the loop cancels the work on the
        server: at once with `contextlib.aclosing`, else when the generator is collected. It is sent again only while no
        event has come.
        """
        request = await _write_request(question, self.timeout, options)
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
        call = self._begin(STREAM_MODEL, lambda: answers.cancel())
        answers = self._client.stream_infer(_once(add_call_id(asked, call)), stream_timeout=timeout)
        ended = False
        try:
            async for result, error in answers:
                if error is not None:
                    ended = True
                    raise read_failure(error, self.url, timeout)
                event = read_event(result)
                ended = event.kind == "finished"
                yield event
        except asyncio.CancelledError:
            if call.died:
                raise make_death_error(self.url) from None
            raise
        except grpc.RpcError as error:
            status = InferenceServerException(error.details(), str(error.code()))
            raise read_failure(status, self.url, timeout) from error
        finally:
            self._calls.finish(call)
            if ended:  # Triton before 25.04 can crash when a stream is cancelled in the moment of its last event
                with suppress(grpc.RpcError):
                    _ = [answer async for answer in answers]
            answers.cancel()


def _trace(client: Any) -> None:
    """Where spans are asked for, calls carry the current one with them."""
    spans.start("revelator-client")
    if spans.are_on():
        client.register_plugin(spans.Traced())


async def _write_request(question: str, seconds: float, options: Options) -> dict[str, Any]:
    """The request; one with an earlier trace, which may have megabytes, is written beside the event loop."""
    if options.get("reuse") is None:
        return build_request(question, seconds, **options)
    return await asyncio.to_thread(build_request, question, seconds, **options)


async def _read_answer(result: Any) -> Answer:
    if len(result.as_numpy("trace")[0]) <= LARGE_BYTES:
        return read_answer(result)
    return await asyncio.to_thread(read_answer, result)


async def _once(request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield request
