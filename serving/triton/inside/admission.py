"""Admission: which requests are accepted, and when each may start work.

At most `limit` requests are in flight, and a request that could not be answered within its deadline is refused at once.
Of those in flight as many work as keep the cores busy; the others wait for their turn, first come, first served. If
all worked at once each would take as long as all of them, and throughput would fall: on two cores, 8 questions at a
time were answered at 4.2 a second, 32 at a time at 3.5. Cores count as busy from 80 % of their time on, because the one
process of the planning model is saturated before two cores are.

The estimate is Little's law over the requests that worked lately. They took `t` seconds each while `n` worked, so n / t
are done a second: a request with w others before it waits for w * t / n, and then takes `t`. Requests differ, and
nothing is known of one before it works; so `t` is multiplied by a margin. The margin rises with each request that takes
longer than predicted, falls with each other, and settles where a share `LATE` of them does (as in adaptive conformal
inference, Gibbs and Candès 2021).

`executor` and `executor_stream` are two processes on the same cores. Neither knows of the other: each sees the times of
its own requests, which are longer while the other works.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Lock

import psutil

from revelator.errors import Overloaded

DECAY = 0.97  # weight that older answers keep at each new one: the last 33 count
OVERDUE = 2.0  # times the mean: what has been at work for longer is taken into it before there is an answer
LATE, STEP = 0.03, 0.15
MARGIN, LEAST_MARGIN, MOST_MARGIN = 2.0, 1.0, 6.0  # of a request's own time; at first, and bounds
WAIT_MARGIN = 1.6  # of the wait for others: where many ask, they fill whatever a moment's estimate leaves
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 50.0, 5_000.0  # bounds of the wait that a refused client is given
A_CORE = 3  # requests at work for each core, at least
IDLE, BUSY = 0.6, 0.8  # shares of the cores' time: below the first more are let to work, above the second fewer
LOOK_SECONDS = 0.25  # between looks at the cores


@dataclass(eq=False)
class Work:
    """A request at work: its start, the summed working time of all requests by then, its predicted seconds."""

    began: float
    passed: float
    predicted: float | None


class Pace:
    """How long requests take, learnt from those that worked lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now = clock()
        self._at_work: set[Work] = set()
        self._passed = 0.0  # seconds at work of all requests together, up to `_now`
        # of those that are known: how many were answered, their seconds, and the seconds at work of all meanwhile
        self._answers = self._seconds = self._beside = 0.0
        self._margin = MARGIN

    def begin(self) -> Work:
        self._advance()
        predicted = self._margin * self._compute_mean()[0] if self._answers else None
        work = Work(self._now, self._passed, predicted)
        self._at_work.add(work)
        return work

    def end(self, work: Work, *, answered: bool) -> None:
        """`answered`: it was done to its end. Else it counts as far as it took longer than is usual."""
        self._advance()
        took = self._now - work.began
        counted = took if answered else self._measure_overdue(work)
        self._at_work.discard(work)
        if counted > 0:
            self._answers = DECAY * self._answers + answered
            self._seconds = DECAY * self._seconds + counted
            self._beside = DECAY * self._beside + (self._passed - work.passed) * counted / took
        if work.predicted is not None and (answered or took > work.predicted):
            margin = self._margin * math.exp(STEP * ((took > work.predicted) - LATE))
            self._margin = min(max(margin, LEAST_MARGIN), MOST_MARGIN)

    def estimate(self, before: int, at_once: int) -> float:
        """Seconds within which nearly every request is answered that comes when `before` others are in flight, of which
        `at_once` may be at work; 0 while nothing is known.

        One more at work than lately is taken to cost the others nothing, until it shows: an endpoint answers many in
        the time of one.
        """
        self._advance()
        seconds, beside = self._compute_mean()
        share = max(1.0, min(before, at_once - 1) / beside)
        wait = max(0, before - at_once + 1) * seconds / min(beside, at_once)
        return self._margin * seconds * share + WAIT_MARGIN * wait

    def estimate_answers(self, answers: float) -> float:
        """Seconds until so many requests have been answered."""
        self._advance()
        seconds, beside = self._compute_mean()
        return answers * seconds / beside

    def _compute_mean(self) -> tuple[float, float]:
        """Seconds that a request is at work, and how many are meanwhile."""
        overdue = sum(map(self._measure_overdue, self._at_work))
        seconds = self._seconds + overdue
        beside = (self._beside + overdue * len(self._at_work)) / seconds if seconds else 1.0
        return seconds / max(self._answers, 1.0), max(beside, 1.0)

    def _advance(self) -> None:
        now = self._clock()
        self._passed += len(self._at_work) * (now - self._now)
        self._now = now

    def _measure_overdue(self, work: Work) -> float:
        """Seconds for which a request has been at work beyond what is usual; all of them while nothing was answered."""
        usual = OVERDUE * self._seconds / self._answers if self._answers else 0.0
        return max(0.0, self._now - work.began - usual)


class Admission:
    """`admit`, `end` and `in_flight` may be called from any thread, the rest from one event loop. A request that takes
    no `turn` is only counted."""

    def __init__(self, limit: int, at_once: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._least = min(limit, at_once or A_CORE * len(os.sched_getaffinity(0)))
        self._at_once = self._least
        self._turns = asyncio.Semaphore(self._least)
        self._withheld = 0  # turns that are not handed on, so that fewer are at work
        self._is_short = False  # of turns, lately: somebody waited for one, or was refused
        self._pace = Pace(clock)
        self._requests: set[Hashable] = set()
        self._lock = Lock()

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    def admit(self, request: Hashable, seconds: float = math.inf) -> None:
        """Takes in a request that must be answered within `seconds`. Raises Overloaded, with the time after which there
        should be room. One that comes alone is always taken in."""
        with self._lock:
            count = len(self._requests)
            if count >= self.limit:
                raise _make_refusal(f"{count} requests are in flight already", self._pace.estimate_answers(1))
            due = self._pace.estimate(count, self._at_once)
            if count and due > seconds:
                self._is_short = True
                message = f"with {count} in flight it would take up to {due:.1f} s, and {seconds:.3g} s are allowed"
                raise _make_refusal(message, self._pace.estimate_answers(count * (1 - seconds / due)))
            self._requests.add(request)

    def end(self, request: Hashable) -> None:
        """Gives the request's place back."""
        with self._lock:
            self._requests.discard(request)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Around the work on one request; waits until it may begin."""
        self._is_short |= self._turns.locked()
        await self._turns.acquire()
        with self._lock:
            work = self._pace.begin()
        answered = False
        try:
            yield
            answered = True
        finally:
            with self._lock:
                self._pace.end(work, answered=answered)
            if self._withheld:
                self._withheld -= 1
            else:
                self._turns.release()

    async def watch_cores(self, percent: Callable[[], float] = psutil.cpu_percent) -> None:
        """Lets more work while the cores have time to spare and requests wait, as for an endpoint; fewer when they have
        not. Runs until it is cancelled. `percent`: of the cores' time that was used since it was called before."""
        percent()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._adapt(percent() / 100)

    def _adapt(self, busy: float) -> None:
        is_short, self._is_short = self._is_short or self._turns.locked(), False
        if busy < IDLE and is_short:
            more = min(max(1, self._at_once // 4), self.limit - self._at_once)
            self._at_once += more
            for _ in range(more):
                if self._withheld:
                    self._withheld -= 1
                else:
                    self._turns.release()
        elif busy > BUSY:
            fewer = min(max(1, self._at_once // 8), self._at_once - self._least)
            self._at_once -= fewer
            self._withheld += fewer


def _make_refusal(message: str, seconds: float) -> Overloaded:
    after = round(min(max(1000 * seconds, SHORTEST_WAIT_MS), LONGEST_WAIT_MS))
    hint = "ask again after retry_after_ms, allow more time (deadline_ms), or serve on more machines"
    return Overloaded(message, hint=hint, retry_after_ms=after)
