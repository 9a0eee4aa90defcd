"""Ends calls to a model whose process died while it was at work on them.

Triton 2.51 never answers a request that was inside a dead process which answers through senders, as the generator
does: the call would wait for the question's deadline. The server's children are looked at while calls wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil

from revelator.errors import Unavailable

LOOK_SECONDS = 1.0


class Lives:
    """Of the processes of `model`, a model of the same server as the one whose process this is."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._server = psutil.Process(os.getppid())
        self._waiting: set[asyncio.Timeout] = set()
        self._look: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Around one call: raises Unavailable when a process that might have been at work on it is gone."""
        try:
            async with asyncio.timeout(None) as scope:
                self._waiting.add(scope)
                if self._look is None or self._look.done():
                    self._look = asyncio.create_task(self._look_while_calls_wait())
                try:
                    yield
                finally:
                    self._waiting.discard(scope)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise Unavailable("its process died while it was asked", where=f"model {self._model}") from error

    async def _look_while_calls_wait(self) -> None:
        lived = await asyncio.to_thread(self._processes)
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            asked = list(self._waiting)
            live = await asyncio.to_thread(self._processes)
            if lived - live:
                for scope in self._waiting.intersection(asked):
                    scope.reschedule(0.0)
            lived = live

    def _processes(self) -> set[int]:
        found = set()
        for child in self._server.children():
            with suppress(psutil.Error):
                if any(f"/{self._model}/" in argument for argument in child.cmdline()):
                    found.add(child.pid)
        return found
