"""Calls of concurrent questions put together into batches, for a model in this process.

Triton does this for models that it hosts. While one batch runs, what arrives waits and makes up the next; a batch that
finds the model idle waits one turn of the event loop, so that the leaves which start together travel together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from revelator.errors import DeadlineExceeded, Overloaded, ServingError, Unavailable

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")
Result = TypeVar("Result")
OF_THE_MODEL = (Unavailable, Overloaded, DeadlineExceeded)  # what a row has no part in


@dataclass(eq=False)
class QueuedRow(Generic[Row, Result]):
    row: Row
    done: asyncio.Future[Result]


class Batcher(Generic[Key, Row, Result]):
    """Runs `run(key, rows)` on at most `size` rows of one key at a time, and one batch at a time.

    A batch that fails is run again row by row, so that a row which is wrong fails its own caller, unless the error
    speaks of the model and not of a row: then all get it. A batch is cancelled when all its callers are gone; one that
    is cancelled by somebody else is Unavailable to its callers, so that none waits for what will not come.
    """

    def __init__(self, run: Callable[[Key, Sequence[Row]], Awaitable[Sequence[Result]]], size: int) -> None:
        self._run = run
        self._size = size
        self._waiting: dict[Key, list[QueuedRow[Row, Result]]] = {}  # the key whose turn is next stands first
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, key: Key, row: Row) -> Result:
        call: QueuedRow[Row, Result] = QueuedRow(row, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key, []).append(call)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await call.done

    async def _work(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            key = next(iter(self._waiting))
            calls = [call for call in self._waiting.pop(key) if not call.done.done()]
            if later := calls[self._size :]:
                self._waiting[key] = later
            if calls:
                await self._run_batch(key, calls[: self._size])

    async def _run_batch(self, key: Key, calls: Sequence[QueuedRow[Row, Result]]) -> None:
        work = asyncio.ensure_future(self._run(key, [call.row for call in calls]))

        def cancel_unless_awaited(_: asyncio.Future[Result]) -> None:
            if all(call.done.done() for call in calls):
                work.cancel()

        for call in calls:
            call.done.add_done_callback(cancel_unless_awaited)
        await asyncio.wait([work])
        error: BaseException | None
        if work.cancelled():
            hint = "see whether the model was closed, and ask again"
            error = Unavailable("the model's work on this batch was cancelled", hint=hint)
        elif (error := work.exception()) is None and len(work.result()) != len(calls):
            error = ServingError(f"the model gave {len(work.result())} results for {len(calls)} rows")
        if error is None:
            for call, result in zip(calls, work.result(), strict=True):
                if not call.done.done():
                    call.done.set_result(result)
            return
        for call in calls:
            if call.done.done():
                continue
            if len(calls) == 1 or isinstance(error, OF_THE_MODEL):
                call.done.set_exception(error)
            else:
                await self._run_batch(key, [call])


async def gather_all(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Makes the calls at the same time; their results in order. The first error ends the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
