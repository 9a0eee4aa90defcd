"""The garbage collector of a process that answers many questions at once."""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 20_000  # a question of 64 leaves leaves about 1,500; Python's 700 would interrupt it twice


def settle() -> None:
    """Call when everything is loaded: what lives then is never traversed again, and what is new less often.

    Traversing some hundred thousand objects of libraries takes tens of milliseconds of whichever question is under way.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
