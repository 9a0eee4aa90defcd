"""Work of the event loop's own that may take long: in a thread, so that the loop goes on and the deadline runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

SMALL = 1_000  # characters of input with which no work takes more than 3 ms of the loop

Result = TypeVar("Result")


async def apart(size: int, work: Callable[[], Result]) -> Result:
    """What `work()` gives. With an input of more than `SMALL` characters it has its own thread; smaller work is not
    to pay the 0.1 ms that this costs. A caller that is cancelled leaves the thread behind, so work must end by itself.
    """
    return await asyncio.to_thread(work) if size > SMALL else work()
