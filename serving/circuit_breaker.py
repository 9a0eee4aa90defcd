"""Calls to a source that may fail: retries with backoff, and a circuit breaker while the source is down.

Only idempotent calls are retried: searches and readings, which change nothing. A call that met `Unavailable` (no
connection, a restart), `Overloaded` or an `OSError` of the connection is retried after a pause that doubles and is
drawn at random below its bound, so that many callers do not come back at once. A source that fails again and again is
not asked for a while; then one call tries it, and its outcome decides for the others.
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
class RetryPolicy:
    """A call has up to `attempts`; pauses are below `pause_seconds`, twice that, … up to `longest_pause_seconds`.

    The source rests for `rest_seconds` after `failures` calls in a row that ended with Unavailable, DeadlineExceeded or
    OSError. Any other error, Overloaded too, resets the count.
    """

    attempts: int = 3
    pause_seconds: float = 0.05
    longest_pause_seconds: float = 1.0
    failures: int = 5
    rest_seconds: float = 2.0


class CircuitBreaker:
    """Makes the calls to one source, for all questions. Tests hand in `clock`, `sleep` and `random`.

    Closed: every call passes. Open: none until `rest_seconds` are over, then one at a time until one succeeds.
    """

    def __init__(
        self,
        name: str,
        policy: RetryPolicy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.policy = policy or RetryPolicy()
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self._failures = 0
        self._open_until = 0.0
        self._trial: object | None = None  # the call that tries the source after a rest

    async def call(
        self, attempt: Callable[[], Awaitable[Result]], on_retry: Callable[[], object] = lambda: None
    ) -> Result:
        """Returns what `attempt()` gives. Raises its error when it is of another kind, is `final`, or was met in every
        attempt; raises Unavailable at once while the source rests. `on_retry` is called before each new attempt."""
        this = object()
        if self._is_open:
            left = self._open_until - self._clock()
            if left > 0 or self._trial is not None:
                wait = max(left, self.policy.pause_seconds)
                message = f"failed {self.policy.failures} times in a row and is left alone for {wait:.1f} s"
                raise Unavailable(message, where=self.name, hint="see why it fails, or ask again later", final=True)
            self._trial = this
        try:
            result = await self._try_repeatedly(attempt, on_retry)
        except (Unavailable, DeadlineExceeded, OSError):
            self._failures += 1
            if self._is_open:
                self._open_until = self._clock() + self.policy.rest_seconds
            raise
        except Exception:
            self._failures = 0  # it answered, if only that it will not do this
            raise
        else:
            self._failures = 0
            return result
        finally:
            if self._trial is this:  # a call from before the rest may end while another tries the source
                self._trial = None

    @property
    def _is_open(self) -> bool:
        return self._failures >= self.policy.failures

    async def _try_repeatedly(self, attempt: Callable[[], Awaitable[Result]], on_retry: Callable[[], object]) -> Result:
        for number in range(1, self.policy.attempts):
            try:
                return await attempt()
            except (Unavailable, Overloaded, OSError) as error:
                if self._is_open or _is_final(error):
                    raise
            on_retry()
            bound = min(self.policy.pause_seconds * 2 ** (number - 1), self.policy.longest_pause_seconds)
            await self._sleep(self._random() * bound)
        return await attempt()


def _is_final(error: Exception) -> bool:
    """Whether another attempt cannot help: the source said so, or the call has had its time."""
    return isinstance(error, TimeoutError) or (isinstance(error, Unavailable) and error.final)
