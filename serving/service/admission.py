"""Admission: which questions are taken in, and whose turn it is to work.

At most `limit` questions are in flight, of which `at_once` work; the others wait for a turn. Clients that wait take
turns, however many questions each has: one that asks without pause delays the others by one question each. Where all
places are taken, the last question that waits of the client that has most gives its place to a client that has fewer.

A question is refused at once if it would not be answered in time. A turn comes free every `mean / at_once` seconds,
where `mean` is the moving mean of the seconds at work; then the question takes `mean` itself. Three mean deviations are
added, as TCP adds four to wait for a packet (RFC 6298), and those of the questions before it add up as chance does.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from revelator.errors import Overloaded

WEIGHT = 0.1  # of the newest question in the moving mean
DEVIATIONS = 3.0
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 50.0, 5_000.0  # bounds of the wait that a refused client is given
PEER: ContextVar[str] = ContextVar("peer", default="")  # the client that this task works for


class Admission:
    """Used by one event loop. The client of a question is that of `PEER`."""

    def __init__(self, limit: int, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.at_once = min(at_once, limit)
        self._clock = clock
        self._places: Counter[str] = Counter()  # questions in flight, by client
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client; the one whose turn is next stands first
        self._at_work = 0
        self._mean = self._deviation = 0.0

    @property
    def in_flight(self) -> int:
        return self._places.total()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @contextmanager
    def place(self, seconds: float = math.inf) -> Iterator[None]:
        """Around a question that must be answered within `seconds`. Raises Overloaded, with the time after which there
        should be room. A question that comes alone is always taken in."""
        peer, count = PEER.get(), self.in_flight
        due = self._estimate_time(peer)
        if count and due > seconds:
            message = f"with {count} in flight it would take up to {due:.1f} s, and {seconds:.3g} s are allowed"
            raise self._make_refusal(message)
        if count >= self.limit and not self._free_a_place(peer):
            raise self._make_refusal(f"{count} requests are in flight already")
        self._places[peer] += 1
        try:
            yield
        finally:
            self._places[peer] -= 1
            self._places += Counter()  # forgets clients without a question

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Around the work on a question; waits until it may begin."""
        if self._at_work < self.at_once:
            self._at_work += 1
        else:
            await self._wait(PEER.get())
        began, ended = self._clock(), False
        try:
            yield
            ended = True
        finally:
            took = self._clock() - began
            if ended or took > self._mean:
                self._learn(took)
            self._hand_on()

    async def _wait(self, peer: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and not turn.exception():
                self._hand_on()
            raise
        finally:
            if turn in self._waiting.get(peer, ()):
                self._take(peer, turn)

    def _take(self, peer: str, turn: asyncio.Future[None]) -> None:
        self._waiting[peer].remove(turn)
        if not self._waiting[peer]:
            del self._waiting[peer]

    def _hand_on(self) -> None:
        """Gives the turn to the next client's first question, and puts that client behind the others."""
        while self._waiting:
            peer, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[peer]
            if turns:
                self._waiting[peer] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._at_work -= 1

    def _free_a_place(self, peer: str) -> bool:
        """Refuses the last that waits of the client with most places, if that is more than `peer` would have."""
        greediest = max(self._waiting, key=self._places.__getitem__, default=peer)
        if self._places[greediest] <= self._places[peer] + 1:
            return False
        turn = self._waiting[greediest][-1]
        self._take(greediest, turn)
        if not turn.done():
            turn.set_exception(self._make_refusal("other clients have fewer questions in flight, and take turns"))
        return True

    def _estimate_time(self, peer: str) -> float:
        """Seconds until a question that comes now is answered, at most: of each other client as many go before it as
        its own."""
        if self._at_work < self.at_once:
            return self._mean + DEVIATIONS * self._deviation
        own = len(self._waiting.get(peer, ()))
        before = own + sum(min(len(turns), own + 1) for other, turns in self._waiting.items() if other != peer)
        turns = 1 + (before + 1) / self.at_once  # one after the other, its own the last
        return turns * self._mean + DEVIATIONS * math.sqrt(turns) * self._deviation

    def _learn(self, took: float) -> None:
        weight = WEIGHT if self._mean else 1.0
        self._deviation += WEIGHT * (abs(took - self._mean) - self._deviation) if self._mean else 0.0
        self._mean += weight * (took - self._mean)

    def _make_refusal(self, message: str) -> Overloaded:
        """The client is told to wait for half of what is in flight."""
        seconds = self.in_flight / 2 * self._mean / self.at_once
        after = round(min(max(1000 * seconds, SHORTEST_WAIT_MS), LONGEST_WAIT_MS))
        hint = "ask again after retry_after_ms, allow more time (deadline_ms), or serve on more machines"
        return Overloaded(message, hint=hint, retry_after_ms=after)
