"""Model processes that die: calls to them end, and a process that can run no Python ends itself.

Triton 2.51 never answers a request that was inside a process which died, if the process answers through senders, as
the generator does: the call would wait until the question's deadline. So the executor watches the server's child
processes while its calls wait. A client of the executor cannot see them; it sends probes (`revelator.calls`).

If the server ends while the stub of Triton 2.51 loads its model, the stub waits for the server forever and holds the
interpreter's lock, so that its own check of its parent waits too. The kernel's alarm needs no lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import psutil

from revelator.errors import Unavailable

LOOK_SECONDS = 1.0
MOST_CALLS = 10_000  # calls, each for longer than a client waits before it sends a probe


class ProcessGuard:
    """Watches the processes of `model`, another model of the same server, while calls to it wait."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._server = psutil.Process(os.getppid())
        self._waiting: set[asyncio.Timeout] = set()
        self._watching: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Around one call: raises Unavailable when a process that might have been at work on it is gone."""
        try:
            async with asyncio.timeout(None) as scope:
                self._waiting.add(scope)
                if self._watching is None or self._watching.done():
                    self._watching = asyncio.create_task(self._watch_while_calls_wait())
                try:
                    yield
                finally:
                    self._waiting.discard(scope)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise Unavailable("its process died while it was asked", where=f"model {self._model}") from error

    async def _watch_while_calls_wait(self) -> None:
        before = await asyncio.to_thread(self._find_processes)
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            calls = list(self._waiting)
            alive = await asyncio.to_thread(self._find_processes)
            if before - alive:
                for scope in self._waiting.intersection(calls):
                    scope.reschedule(0.0)
            before = alive

    def _find_processes(self) -> set[int]:
        return find_processes(self._server, self._model)


class SeenCalls:
    """The calls that this process of `model` has seen, by the clients' own names for them."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._began = time.monotonic()
        self._calls: dict[str, None] = {}  # the earliest first

    def add(self, call: str | None) -> None:
        if call:
            self._calls[call] = None
            if len(self._calls) > MOST_CALLS:
                del self._calls[next(iter(self._calls))]

    def describe(self, calls: Sequence[str]) -> str:
        """The answer to a probe for these calls (`revelator.calls.OpenCalls.handle_reply`)."""
        known = [call for call in calls if call in self._calls]
        process = {"pid": os.getpid(), "age": time.monotonic() - self._began, "known": known}
        alive = find_processes(psutil.Process(os.getppid()), self._model) if len(known) < len(calls) else ()
        return json.dumps({**process, "alive": [*alive]})


def find_processes(server: psutil.Process, model: str) -> set[int]:
    """The process ids of a model; a process that has died and is still listed has no command line."""
    found = set()
    for child in server.children():
        with suppress(psutil.Error):
            if any(f"/{model}/" in argument for argument in child.cmdline()):
                found.add(child.pid)
    return found


LIMIT_SECONDS = 60


def start_heartbeat() -> None:
    """From now on this process is ended (SIGALRM) once it has run no Python for `LIMIT_SECONDS`."""
    threading.Thread(target=_keep_alarm_away, name="heartbeat", daemon=True).start()


def _keep_alarm_away() -> None:
    while True:
        signal.alarm(LIMIT_SECONDS)
        time.sleep(LIMIT_SECONDS / 4)
