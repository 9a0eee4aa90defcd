"""Model processes that die: clients of the executor learn of it, and a process that can run no Python ends itself.

Triton 2.51 never answers a request that was inside a process which died, if the process answers through senders, as the
executor does. A client cannot see the server's processes, so it sends probes (`revelator.calls`).

If the server ends while the stub of Triton 2.51 loads its model, the stub waits for the server forever and holds the
interpreter's lock, so that its own check of its parent waits too. The kernel's alarm needs no lock.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

MOST_CALLS = 10_000  # calls, each for longer than a client waits before it sends a probe


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
