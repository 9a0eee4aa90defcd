"""The garbage collector of a process that answers or scores many questions."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS = 20_000  # a question of 64 leaves makes about 1,000: Python's own 700 would interrupt it


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
