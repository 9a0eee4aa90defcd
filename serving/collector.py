"""The garbage collector of a process that answers or scores many questions, and the memory that it no longer needs."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000  # a question of 64 leaves makes about 1,000: Python's own 700 would interrupt it
KEPT_SECONDS = 10.0  # for which free memory may stay with the process: giving it back, and taking it again, costs time


def settle() -> None:
    """Call when everything is loaded: what lives then is never traversed again, and what is new less often.

    Traversing the 86,000 objects of the executor's imports took 61 ms of whichever question would be under way.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def settled() -> Iterator[None]:
    """`settle` for a while: afterwards the collector is as before, for what lies in cycles and holds a stream open."""
    before = gc.get_threshold()
    settle()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def give_back() -> None:
    """Gives the allocator's free memory back to the system, which takes 3 to 30 ms."""
    ctypes.CDLL(None).malloc_trim(0)  # of glibc, which the Triton server needs


def give_back_often() -> None:
    """`give_back` every `KEPT_SECONDS` for as long as the process lives: what its largest batch took would be kept."""

    def work() -> None:
        while True:
            time.sleep(KEPT_SECONDS)
            give_back()

    threading.Thread(target=work, name="memory", daemon=True).start()
