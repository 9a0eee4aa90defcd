"""When a question may be put again. It changes nothing on a server, so only its time is at stake.

It is put again by code: after UNAVAILABLE (the server was full, restarting or not there), unless the error is `final`;
never after what another attempt would meet again, or after a deadline. The pause is what the server asked for, else
`FIRST_PAUSE` and then twice as long each time, and up to as much again, so that many who were refused come one by one.
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
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._left = retries
        self._clock = clock
        self._chance = chance
        self._ends = clock() + seconds
        self._pause = FIRST_PAUSE

    @property
    def seconds(self) -> float:
        """What is left for the next attempt."""
        return self._ends - self._clock()

    def pause(self, error: RevelatorError) -> float:
        """Seconds to wait before the next attempt. Raises `error` when there is to be none."""
        if not may_be_put_again(error) or self._left <= 0:
            raise error
        self._left -= 1
        asked = error.retry_after_ms / 1000 if isinstance(error, Overloaded) and error.retry_after_ms else self._pause
        self._pause *= 2
        wait = asked * (1 + self._chance())
        if wait >= self.seconds:
            raise error
        return wait


def may_be_put_again(error: RevelatorError) -> bool:
    """Whether the gRPC code is UNAVAILABLE, and the server did not say that another attempt cannot help."""
    return isinstance(error, Overloaded) or (isinstance(error, Unavailable) and not error.final)
