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
from contextlib import suppress

import psutil

TRAVEL_SECONDS = 0.5  # from a client's clock, as a call begins, to the process


def describe_calls(model: str, served: float, held: list[str]) -> str:
    """The reply to a probe (`revelator.calls`). `served` are the seconds since this process got its first request,
    `held` the calls that it is at work on. Of another process of the model, which may still answer, the age counts.

    The age of this process would not do: what came between its start and its first request went to the dead one.
    """
    others = [p for p in find_processes(psutil.Process(os.getppid()), model) if p.pid != os.getpid()]
    ages = [time.time() - process.create_time() for process in others]
    return json.dumps({"age": max([served - TRAVEL_SECONDS, *ages]), "held": held})


def find_processes(server: psutil.Process, model: str) -> list[psutil.Process]:
    """The processes of a model; one that has died and is still listed has no command line."""
    found = []
    for child in server.children():
        with suppress(psutil.Error):
            if any(f"/{model}/" in argument for argument in child.cmdline()):
                found.append(child)
    return found


LIMIT_SECONDS = 60


def start_heartbeat() -> None:
    """From now on this process is ended (SIGALRM) once it has run no Python for `LIMIT_SECONDS`."""
    threading.Thread(target=_keep_alarm_away, name="heartbeat", daemon=True).start()


def _keep_alarm_away() -> None:
    while True:
        signal.alarm(LIMIT_SECONDS)
        time.sleep(LIMIT_SECONDS / 4)
