"""Requests that overlap inside one Triton model instance: an event loop in a thread of its own.

`execute` hands each request over and returns at once; the response goes out through the request's sender. (A coroutine
`execute` would hold the instance until a whole batch is done; decoupled mode would force streaming on clients.) The
loop refuses at once what it cannot finish in time (`serving.triton.inside.admission`). Every admitted request is
answered and its slot is released, whatever raises.

A second thread, the courier, exchanges messages with Triton. To send a response, or to ask whether the client is still
there, takes 0.15 ms, and many times that while the server is flooded: a loop that did it itself would stand still, and
every other question with it. The courier notices within 20 ms that a client went away.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from revelator import spans
from revelator.errors import Cancelled, ServingError
from serving import latency
from serving.service.telemetry import CURRENT, Arrival, Telemetry
from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import make_failure, send_last
from serving.triton.inside.processes import describe_calls

DRAIN_SECONDS = 25.0  # the backend ends a process that takes 30 s
GRACE_SECONDS = 2.0  # after it, for what was cancelled

Open = Callable[[AsyncExitStack], Coroutine[Any, Any, None]]
Answer = Coroutine[Any, Any, Any] | AsyncGenerator[Any, None]  # of one response, or of a decoupled model's many
Begin = Callable[[Any], Answer]
ReplyToProbe = Callable[[str], Any]  # a response that holds the text
SecondsAllowed = Callable[[Any], float]  # seconds in which a request must end
log = logging.getLogger(__name__)


class RequestLoop:
    """Runs coroutines for requests.

    `open` is awaited once in the loop, with the stack of what `close` must release. `telemetry` records admission and
    errors. `seconds_allowed` is the time until a request's deadline. `reply_to_probe` makes the response to a probe
    (`revelator.calls`).
    """

    def __init__(
        self,
        open: Open,
        admission: Admission,
        telemetry: Telemetry,
        seconds_allowed: SecondsAllowed,
        reply_to_probe: ReplyToProbe,
    ) -> None:
        self._telemetry = telemetry
        self._seconds_allowed = seconds_allowed
        self._reply_to_probe = reply_to_probe
        self._loop = asyncio.new_event_loop()
        self._admission = admission  # from `accept`, in Triton's thread, to the response
        self._held: dict[object, str] = {}  # the clients' names of calls, by slot
        self._first_arrival: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._courier = Courier()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(open(self._stack), self._loop).result()
        telemetry.report_in_flight(0, admission.limit)
        latency.tune_collector()

    def accept(self, request: Any, begin: Begin) -> Any:
        """Answers `request` with the result or the error of the coroutine that `begin` makes of it, or, of a decoupled
        model, with each response of an asynchronous generator.

        `begin` copies the inputs before it returns. A request that is not admitted is Overloaded, at once. The response
        that says so, or what is wrong with the request, is returned for `execute` to hand back: a sender would take
        one more exchange of messages, and under overload all others wait for that.
        """
        context = copy_context()
        slot = object()
        try:
            arrival = Arrival.read(request)
            self._first_arrival = self._first_arrival or time.monotonic()
            context.run(CURRENT.set, arrival)
            if arrival.is_probe:
                reply = self._answer_probe(request.get_response_sender())
                asyncio.run_coroutine_threadsafe(reply, self._loop)
                return None
            self._admission.admit(slot, self._seconds_allowed(request))
            self._held[slot] = arrival.call
            try:
                answer, sender = begin(request), request.get_response_sender()
                self._loop.call_soon_threadsafe(self._start, slot, sender, answer, context=context)
            except BaseException:
                self._release(slot)
                raise
        except BaseException as error:
            return context.run(self._make_failure, error)
        self._telemetry.report_in_flight(self._admission.in_flight, self._admission.limit)
        return None

    async def _answer_probe(self, sender: Any) -> None:
        """Answers a probe, beside admission, so that a full server answers it too."""
        try:
            served, held = time.monotonic() - (self._first_arrival or 0.0), list(self._held.values())
            text = await asyncio.to_thread(describe_calls, self._telemetry.model, served, held)
            reply = self._reply_to_probe(text)
        except Exception as error:
            reply = self._make_failure(error)
        self._courier.send_last(sender, reply)

    def _run(self) -> None:
        """The loop's thread. What ends a program (SystemExit), raised for one request, must not end all others."""
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:
                log.exception("the loop goes on")

    def _release(self, slot: object) -> None:
        self._admission.end(slot)
        self._held.pop(slot, None)
        self._telemetry.report_in_flight(self._admission.in_flight, self._admission.limit)

    def _start(self, slot: object, sender: Any, answer: Answer) -> None:
        task = self._loop.create_task(self._serve(slot, sender, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, slot: object, sender: Any, answer: Answer) -> None:
        arrival = CURRENT.get()
        reply = None
        try:
            with spans.open_span(self._telemetry.model, "server", arrival.traceparent, request=arrival.id):
                whole = self._send_parts(sender, answer) if isinstance(answer, AsyncGenerator) else answer
                work = asyncio.create_task(whole)
                self._courier.watch(sender, lambda: self._loop.call_soon_threadsafe(work.cancel))
                reply = await work
        except asyncio.CancelledError:
            reply = self._make_failure(Cancelled("the client went away, or the server is stopping"))
        except BaseException as error:
            reply = self._make_failure(error)
        finally:
            self._release(slot)
            self._courier.send_last(sender, reply)

    def _make_failure(self, error: BaseException) -> Any:
        """The response for an error, also for one that cannot be written, such as one whose text raises."""
        self._telemetry.record_error(error)
        try:
            return make_failure(error)
        except Exception as fault:
            return make_failure(
                ServingError(f"{type(error).__name__}, which cannot be written: {type(fault).__name__}")
            )

    async def _send_parts(self, sender: Any, answers: AsyncGenerator[Any, None]) -> None:
        """Sends all responses of a decoupled model but the flag that ends them."""
        async with aclosing(answers):
            async for answer in answers:
                self._courier.send_part(sender, answer)

    def close(self) -> None:
        """Waits for running requests, cancels what is left after `DRAIN_SECONDS`, then ends the loop."""
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop).result()
        self._courier.close()
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _drain(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=GRACE_SECONDS)
        await self._stack.aclose()


POLL_SECONDS = 0.02  # between two looks whether a client is still there
POLLED_OFTEN = 16  # clients up to which each is looked at so often: 12 % of a core; more share that


class Courier:
    """Callable from any thread; what is handed over for one sender goes out in order."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._watched: OrderedDict[Any, Callable[[], object]] = OrderedDict()  # of this thread; the next one first
        self._unsent: dict[Any, Exception] = {}  # of this thread
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
        self._thread.start()

    def watch(self, sender: Any, on_leave: Callable[[], object]) -> None:
        """Calls `on_leave`, in the courier's thread, once when the client of the request went away."""
        self._orders.put(lambda: self._watched.update({sender: on_leave}))

    def send_part(self, sender: Any, answer: Any) -> None:
        """Sends one response of many. After one that could not be sent the last is an error."""
        self._orders.put(lambda: self._send_part(sender, answer))

    def send_last(self, sender: Any, answer: Any) -> None:
        """Sends the last response (None: only that it ended); nothing may be sent after it. A response that cannot be
        sent is replaced by an error that can."""
        self._orders.put(lambda: self._send_last(sender, answer))

    def close(self) -> None:
        """Returns when all that was handed over has gone out."""
        self._orders.put(None)
        self._thread.join()

    def _send_last(self, sender: Any, answer: Any) -> None:
        self._watched.pop(sender, None)
        fault = self._unsent.pop(sender, None)
        try:
            send_last(sender, make_failure(fault) if fault else answer)
        except Exception as error:
            send_last(sender, make_failure(error))

    def _send_part(self, sender: Any, answer: Any) -> None:
        try:
            sender.send(answer)
        except Exception as error:
            self._unsent[sender] = error

    def _work(self) -> None:
        due = 0.0
        while True:
            try:
                order = self._orders.get(timeout=max(0.0, due - time.monotonic()) if self._watched else None)
            except Empty:
                order = self._poll
                due = time.monotonic() + POLL_SECONDS / min(len(self._watched), POLLED_OFTEN)
            if order is None:
                return
            try:
                order()
            except BaseException:
                log.exception("a message to the server failed")

    def _poll(self) -> None:
        sender, on_leave = self._watched.popitem(last=False)
        if sender.is_cancelled():
            on_leave()
        else:
            self._watched[sender] = on_leave
