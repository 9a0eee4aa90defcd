"""Calls to a source that may fail: tried again where that can help, and left alone while the source is down.

`Guard.call` is for idempotent calls: searches and readings, which change nothing. A call that met `Unavailable` (no
connection, a restart), `Overloaded` or an `OSError` of the connection itself is made again after a pause that doubles
and is drawn at random below its bound, so that many callers do not come back at once. A source that fails again and
again is not asked at all for a while; then one call tries it, and what it meets decides for the others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from revelator.errors import DeadlineExceeded, Overloaded, Unavailable

Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """`attempts` a call; pauses below `pause_seconds`, twice that, … up to `longest_pause_seconds`. After
    `failures` calls in a row that failed to the last attempt the source is left alone for `rest_seconds`."""

    attempts: int = 3
    pause_seconds: float = 0.05
    longest_pause_seconds: float = 1.0
    failures: int = 5
    rest_seconds: float = 2.0


class Breaker:
    """Whether a source may be asked: yes; no, until it has rested; then one call at a time until one goes well."""

    def __init__(self, patience: Patience, clock: Callable[[], float]) -> None:
        self._patience = patience
        self._clock = clock
        self._failures = 0
        self._rests_until = 0.0
        self._trial: object | None = None

    def enter(self, call: object) -> float:
        """0 if `call` may be made; otherwise the seconds to wait. `leave` must follow a call that was made."""
        if not self.rests:
            return 0.0
        left = self._rests_until - self._clock()
        if left > 0 or self._trial is not None:
            return max(left, self._patience.pause_seconds)
        self._trial = call
        return 0.0

    @property
    def rests(self) -> bool:
        return self._failures >= self._patience.failures

    def leave(self, call: object, well: bool | None) -> None:
        """`well` None: the call ended without telling anything about the source (it was cancelled)."""
        if call is self._trial:  # a call from before the rest may end while another tries the source
            self._trial = None
        if well:
            self._failures = 0
        elif well is False:
            self._failures += 1
            if self.rests:
                self._rests_until = self._clock() + self._patience.rest_seconds


class Guard:
    """Stands before one source; shared by all questions. Clock, sleep and chance are handed in for tests."""

    def __init__(
        self,
        name: str,
        patience: Patience | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.patience = patience or Patience()
        self._breaker = Breaker(self.patience, clock)
        self._sleep = sleep
        self._chance = chance

    async def call(
        self, attempt: Callable[[], Awaitable[Result]], on_retry: Callable[[], object] = lambda: None
    ) -> Result:
        """What `attempt()` gives. Raises its error when it is of another kind, is `final`, or was
        met in every attempt; Unavailable at once while the source rests. `on_retry` is called before each new attempt.
        """
        this = object()
        if wait := self._breaker.enter(this):
            message = f"failed {self.patience.failures} times in a row and is left alone for {wait:.1f} s"
            raise Unavailable(message, where=self.name, hint="see why it fails, or ask again later", final=True)
        well: bool | None = None
        try:
            result = await self._try_repeatedly(attempt, on_retry)
            well = True
            return result
        except (Unavailable, DeadlineExceeded, OSError):
            well = False
            raise
        except Exception:
            well = True  # it answered, if only that it will not do this
            raise
        finally:
            self._breaker.leave(this, well)

    async def _try_repeatedly(self, attempt: Callable[[], Awaitable[Result]], on_retry: Callable[[], object]) -> Result:
        for number in range(1, self.patience.attempts):
            try:
                return await attempt()
            except (Unavailable, Overloaded, OSError) as error:
                if self._breaker.rests or _is_final(error):
                    raise
            on_retry()
            await self._sleep(self._choose_pause(number))
        return await attempt()

    def _choose_pause(self, number: int) -> float:
        bound = self.patience.pause_seconds * 2 ** (number - 1)
        return self._chance() * min(bound, self.patience.longest_pause_seconds)


def _is_final(error: Exception) -> bool:
    """Whether another attempt cannot help: the source said so, or the call has had its time."""
    return isinstance(error, TimeoutError) or (isinstance(error, Unavailable) and error.final)
