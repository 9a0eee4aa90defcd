"""Ends a model's process in which no Python can run any more.

The stub of Triton 2.51 whose server ends while the stub loads its model waits for the server's word without end, and
holds the interpreter's lock meanwhile, so that its own look at its parent waits too. The kernel's alarm needs no lock.
"""

from __future__ import annotations

import signal
import threading
import time

LIMIT_SECONDS = 60


def start() -> None:
    """From now on this process is ended (SIGALRM) once it has run no Python for `LIMIT_SECONDS`."""
    threading.Thread(target=_beat, name="heartbeat", daemon=True).start()


def _beat() -> None:
    while True:
        signal.alarm(LIMIT_SECONDS)
        time.sleep(LIMIT_SECONDS / 4)
