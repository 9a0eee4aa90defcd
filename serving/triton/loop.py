"""Requests that overlap inside one Triton model instance: an event loop in a thread of its own.

`execute` hands each request over and returns at once; the response goes out through the request's sender. (A coroutine
`execute` would hold the instance until a whole batch is done; decoupled mode would force streaming on clients.) The
loop admits a fixed number of requests and refuses the next at once, with the time after which to ask again. A client
that went away is noticed within 20 ms (`serving.triton.courier`), so that a question and the reading that it waits for,
one loop behind the other, end within 50 ms.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing
from contextvars import copy_context
from typing import Any

from revelator import spans
from revelator.errors import Cancelled, Overloaded
from serving import collector
from serving.triton.backend import failure
from serving.triton.courier import Courier
from serving.triton.telemetry import ASKED, Asked, Telemetry

DRAIN_SECONDS = 25.0  # the backend ends a process that takes 30 s
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 50.0, 5_000.0  # bounds of what a refused client is told
SHARE_OF_LAST = 0.1  # of the last request in the mean of all

Open = Callable[[AsyncExitStack], Coroutine[Any, Any, None]]
Answer = Coroutine[Any, Any, Any] | AsyncGenerator[Any, None]  # of one response, or of a decoupled model's many
Begin = Callable[[Any], Answer]


class RequestLoop:
    """Runs coroutines for requests. `open` is awaited once in the loop, with the stack of what `close` must release;
    `telemetry` is told of admission and errors."""

    def __init__(self, open: Open, limit: int, telemetry: Telemetry) -> None:
        self.limit = limit
        self._telemetry = telemetry
        self._loop = asyncio.new_event_loop()
        self._running: set[Any] = set()  # senders admitted, from `accept` to the response
        self._tasks: set[asyncio.Task[None]] = set()
        self._mean_seconds = 0.0  # of requests that ended lately
        self._stack = AsyncExitStack()
        self._courier = Courier()
        self._thread = threading.Thread(target=self._loop.run_forever, name="requests", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(open(self._stack), self._loop).result()
        telemetry.in_flight(0, limit)
        collector.settle()

    def accept(self, request: Any, begin: Begin) -> Any:
        """Answers `request` with the result or the error of the coroutine that `begin` makes of it, or, of a decoupled
        model, with each response of an asynchronous generator.

        `begin` copies the inputs before it returns. Beyond the limit the request is Overloaded, at once. The response
        that says so, or what is wrong with the request, is returned for `execute` to hand back: a sender would take
        one more exchange of messages, and under overload all others wait for that.
        """
        context = copy_context()
        context.run(ASKED.set, Asked.of(request))
        try:
            if len(self._running) >= self.limit:
                raise self._overloaded()
            answer = begin(request)
        except Exception as error:
            return context.run(self._failure, error)
        sender = request.get_response_sender()
        self._running.add(sender)
        self._telemetry.in_flight(len(self._running), self.limit)
        self._loop.call_soon_threadsafe(self._start, sender, answer, context=context)
        return None

    def _overloaded(self) -> Overloaded:
        """Room is to be had when those in flight have ended, on average; many who wait come back at different times."""
        hint = "try again later, or raise max_in_flight in the model's config.pbtxt"
        after = round(min(max(self._mean_seconds * 1000, SHORTEST_WAIT_MS), LONGEST_WAIT_MS))
        return Overloaded(f"{self.limit} requests are in flight already", hint=hint, retry_after_ms=after)

    def _start(self, sender: Any, answer: Answer) -> None:
        task = self._loop.create_task(self._serve(sender, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, sender: Any, answer: Answer) -> None:
        asked = ASKED.get()
        began = self._loop.time()
        try:
            with spans.span(self._telemetry.model, "server", asked.traceparent, request=asked.id):
                whole = self._parts(sender, answer) if isinstance(answer, AsyncGenerator) else answer
                work = asyncio.create_task(whole)
                self._courier.watch(sender, lambda: self._loop.call_soon_threadsafe(work.cancel))
                reply = await work
        except asyncio.CancelledError:
            reply = self._failure(Cancelled("the client went away, or the server is stopping"))
        except Exception as error:
            reply = self._failure(error)
        self._mean_seconds += SHARE_OF_LAST * (self._loop.time() - began - self._mean_seconds)
        self._running.discard(sender)
        self._telemetry.in_flight(len(self._running), self.limit)
        self._courier.last(sender, reply)

    def _failure(self, error: Exception) -> Any:
        self._telemetry.failed(error)
        return failure(error)

    async def _parts(self, sender: Any, answers: AsyncGenerator[Any, None]) -> None:
        """Sends all responses of a decoupled model but the flag that ends them."""
        async with aclosing(answers):
            async for answer in answers:
                self._courier.part(sender, answer)

    def close(self) -> None:
        """Waits for running requests, cancels what is left after `DRAIN_SECONDS`, then ends the loop."""
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop).result()
        self._courier.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._telemetry.close()

    async def _drain(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late)
        await self._stack.aclose()
