"""When a question is sent again.

A question changes nothing on a server, so a retry costs time alone. A client retries after UNAVAILABLE (the server was
full, restarting or not there), unless the error is `final`; never after what another attempt would meet again, or after
a deadline. It waits as long as the server asked for, or `FIRST_PAUSE` and then twice as long each time, and up to as
much again, so that many clients that were refused do not return at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from revelator.errors import Overloaded, RevelatorError, Unavailable

FIRST_PAUSE = 0.1  # seconds


class Attempts:
    """The attempts of one call: at most `retries` after the first, all within `seconds`."""

    def __init__(
        self,
        retries: int,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._left = retries
        self._clock = clock
        self._random = random
        self._ends = clock() + seconds
        self._pause = FIRST_PAUSE

    @property
    def seconds(self) -> float:
        """The seconds that are left for the next attempt."""
        return self._ends - self._clock()

    def choose_pause(self, error: RevelatorError) -> float:
        """Seconds to wait before the next attempt. Raises `error` if there is no next attempt."""
        may_pass = isinstance(error, Overloaded) or (isinstance(error, Unavailable) and not error.final)
        if not may_pass or self._left <= 0:
            raise error
        self._left -= 1
        pause = self._pause
        if isinstance(error, Overloaded) and error.retry_after_ms:
            pause = error.retry_after_ms / 1000
        self._pause *= 2
        wait = pause * (1 + self._random())
        if wait >= self.seconds:
            raise error
        return wait
