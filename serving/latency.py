"""Keeps latency low in a process that answers many questions: moves long work off the event loop, tunes the garbage
collector, returns free memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

YOUNG_OBJECTS = 20_000  # a question of 64 leaves makes about 1,000: Python's own 700 would interrupt it
KEPT_SECONDS = 10.0  # for which free memory may stay with the process: giving it back, and taking it again, costs time
SMALL = 1_000  # characters of input with which no work takes more than 3 ms of the loop
Result = TypeVar("Result")


def tune_collector() -> None:
    """Call when everything is loaded: what lives then is never traversed again, and what is new less often.

    Traversing the 86,000 objects of the executor's imports took 61 ms of whichever question would be under way.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def use_tuned_collector() -> Iterator[None]:
    """Tunes the collector for a while; afterwards it is as before, for what lies in cycles and holds a stream open."""
    before = gc.get_threshold()
    tune_collector()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def trim_memory() -> None:
    """Gives the allocator's free memory back to the system, which takes 3 to 30 ms."""
    ctypes.CDLL(None).malloc_trim(0)  # of glibc, which the Triton server needs


def keep_trimming_memory() -> None:
    """Trims every `KEPT_SECONDS` while the process lives, which would else keep what its largest batch took."""

    def work() -> None:
        while True:
            time.sleep(KEPT_SECONDS)
            trim_memory()

    threading.Thread(target=work, name="memory", daemon=True).start()


def count_values(value: Any, most: int) -> int:
    """How many values a JSON value holds, itself among them; what is beyond `most` is not counted."""
    count = 1
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            count += count_values(item, most - count)
            if count > most:
                break
    return count


async def write_json(value: Any) -> str:
    """The JSON of a value; that of a large one is written beside the event loop."""
    return await offload(count_values(value, SMALL), partial(json.dumps, value, ensure_ascii=False))


async def offload(size: int, work: Callable[[], Result]) -> Result:
    """Runs `work()`, in a thread of its own where the input has more than `SMALL` characters, so that the event loop
    goes on and deadlines hold; smaller work does not pay the 0.1 ms that a thread costs. A caller that is cancelled
    leaves the thread behind, so work must end by itself."""
    return await asyncio.to_thread(work) if size > SMALL else work()
