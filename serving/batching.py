"""Calls of concurrent questions put together into batches, for models in this process.

Triton does this remotely: the models `revelator` and `retriever` have dynamic batching. `BatchedRevelator` is the same
for a revelator in this process, behind the same protocol; `serving.retrieval.LocalRetriever` puts searches over vectors
together by a `Batcher` of its own. While one batch runs, what arrives waits and makes up the next; a batch that finds
the model idle waits one turn of the event loop, so that the leaves which start together travel together, or `delay_ms`
if a fuller batch is worth that. Callers take turns row by row: one with 640 rows does not keep one with a single row
waiting for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from revelator.errors import DeadlineExceeded, Overloaded, ServingError, Unavailable
from serving.protocols import Completion, Revelator

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")
Result = TypeVar("Result")
OF_THE_MODEL = (Unavailable, Overloaded, DeadlineExceeded)  # what a row has no part in


@dataclass(eq=False)
class Call(Generic[Row, Result]):
    """One caller's rows: `sent` of them are in a batch that has run or runs."""

    rows: Sequence[Row]
    done: asyncio.Future[list[Result]]
    results: list[Result] = field(default_factory=list)
    sent: int = 0


class Batcher(Generic[Key, Row, Result]):
    """Runs `run(key, rows)` on at most `size` rows of one key at a time, and one batch at a time.

    A batch that fails is run again caller by caller, so that a row which is wrong fails its own caller, unless the
    error speaks of the model and not of a row: then all get it. A batch is cancelled when all its callers are gone; one
    that is cancelled by somebody else is Unavailable to its callers, so that none waits for what will not come.
    """

    def __init__(
        self, run: Callable[[Key, Sequence[Row]], Awaitable[Sequence[Result]]], size: int, delay_ms: float = 0.0
    ) -> None:
        self._run = run
        self._size = size
        self._delay = delay_ms / 1000
        self._waiting: dict[Key, list[Call[Row, Result]]] = {}  # the key whose turn is next stands first
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, key: Key, rows: Sequence[Row]) -> list[Result]:
        """One result a row, in order."""
        if not rows:
            return []
        call: Call[Row, Result] = Call(rows, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key, []).append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await call.done

    async def _work(self) -> None:
        await asyncio.sleep(self._delay)
        while self._waiting:
            key = next(iter(self._waiting))
            calls = [call for call in self._waiting.pop(key) if not call.done.done()]
            batch = take_turns(calls, self._size)
            if rest := [call for call in calls if call.sent < len(call.rows)]:
                self._waiting[key] = rest
            if batch:
                await self._run_batch(key, batch)

    async def _run_batch(self, key: Key, batch: Sequence[tuple[Call[Row, Result], Sequence[Row]]]) -> None:
        self._running = work = asyncio.create_task(self._results(key, [row for _, rows in batch for row in rows]))

        def gone(_: asyncio.Future[list[Result]]) -> None:
            if all(call.done.done() for call, _ in batch):
                work.cancel()

        for call, _ in batch:
            call.done.add_done_callback(gone)
        await asyncio.wait([work])
        for call, _ in batch:
            call.done.remove_done_callback(gone)
        if work.cancelled():
            hint = "see whether the model was closed, and ask again"
            _fail(batch, Unavailable("the model's work on this batch was cancelled", hint=hint))
        elif (error := work.exception()) is None:
            _hand_out(batch, work.result())
        elif len(batch) == 1 or isinstance(error, OF_THE_MODEL):
            _fail(batch, error)
        else:
            for one in batch:
                if not one[0].done.done():
                    await self._run_batch(key, [one])

    async def _results(self, key: Key, rows: Sequence[Row]) -> Sequence[Result]:
        results = await self._run(key, rows)
        if len(results) != len(rows):
            raise ServingError(f"the model gave {len(results)} results for {len(rows)} rows")
        return results


def take_turns(calls: Sequence[Call[Row, Result]], size: int) -> list[tuple[Call[Row, Result], Sequence[Row]]]:
    """At most `size` rows, as many of each call as of any other while it has some; a call's rows stay together."""
    shares = dict.fromkeys(calls, 0)
    while size and (hungry := [call for call in calls if call.sent + shares[call] < len(call.rows)]):
        for call in hungry[:size]:
            shares[call] += 1
        size -= min(size, len(hungry))
    batch = [(call, call.rows[call.sent : call.sent + share]) for call, share in shares.items() if share]
    for call, rows in batch:
        call.sent += len(rows)
    return batch


def _fail(batch: Sequence[tuple[Call[Row, Result], Sequence[Row]]], error: BaseException) -> None:
    for call, _ in batch:
        if not call.done.done():
            call.done.set_exception(error)


def _hand_out(batch: Sequence[tuple[Call[Row, Result], Sequence[Row]]], results: Sequence[Result]) -> None:
    start = 0
    for call, rows in batch:
        call.results += results[start : start + len(rows)]
        start += len(rows)
        if len(call.results) == len(call.rows) and not call.done.done():
            call.done.set_result(call.results)


class BatchedRevelator:
    """`serving.protocols.Revelator` that puts prompts of one task and temperature together, whoever asks."""

    def __init__(self, revelator: Revelator, *, size: int = 64, delay_ms: float = 0.0) -> None:
        self._revelator = revelator
        self._batcher: Batcher[tuple[str, float], str, Completion] = Batcher(self._complete, size, delay_ms)

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return await self._batcher.submit((task, temperature), prompts)

    async def _complete(self, key: tuple[str, float], prompts: Sequence[str]) -> list[Completion]:
        task, temperature = key
        return await self._revelator.complete(task, prompts, temperature=temperature)
