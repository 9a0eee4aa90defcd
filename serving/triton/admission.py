"""Which requests a server takes in: those that it can finish in time, and the others are refused at once.

The requests of one model share the machine, so a request takes as long as there are others beside it. Its *cost* is
its time divided by the mean number of requests in flight during that time: what it would have taken alone, were the
machine its own. `n` requests in flight then end within `n` costs. The cost that 95 of 100 recent requests stayed below
says whether one more can be finished before its own deadline and before that of each request in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import fmean

from revelator.errors import Overloaded

RECENT = 64  # requests that the costs are known of
PERCENTILE = 0.95  # of admitted requests that are to end in time
AIM = 0.7  # of a request's time, in which it is to end: costs to come are not known as well as those that were
UNKNOWN = 8  # requests taken in while no cost is known
OVERDUE = 2.0  # a request that its deadline ended would have cost more: so many times what it had cost until then
SHORTEST_WAIT_MS, LONGEST_WAIT_MS = 50.0, 5_000.0  # bounds of what a refused client is told


@dataclass
class Admitted:
    """A request in flight: when it came, what it is given, and the load (requests × seconds) until it came."""

    came: float
    seconds: float
    load: float


@dataclass
class Admission:
    """At most `limit` requests at a time, and no more than can be finished in time. Times are in seconds, by any clock
    that the caller reads; used under the caller's lock."""

    limit: int
    _admitted: dict[Hashable, Admitted] = field(default_factory=dict)
    _costs: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _cost: float | None = None  # that `PERCENTILE` of the recent requests stayed below
    _load: float = 0.0  # requests in flight, integrated over time
    _now: float = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._admitted)

    def admit(self, request: Hashable, seconds: float, now: float) -> None:
        """Takes in a request that must end within `seconds`. Raises Overloaded, with the time after which to ask
        again. A request that comes alone is always taken in."""
        self._pass_time(now)
        count = len(self._admitted)
        if count >= self.limit:
            raise self._refusal(f"{count} requests are in flight already", count + 1 - self.limit)
        if count and self._cost is None and count >= UNKNOWN:
            raise self._refusal(f"{count} requests are in flight, and none has ended yet", 1)
        if count and self._cost is not None:
            shortest = min(seconds, min(admitted.seconds for admitted in self._admitted.values()))
            fit = AIM * shortest / self._cost
            if count + 1 > fit:
                due = f"{(count + 1) * self._cost:.1f} s with {count} in flight, and {shortest:.3g} s are allowed"
                raise self._refusal(f"it would take about {due}", count + 1 - fit)
        self._admitted[request] = Admitted(now, seconds, self._load)

    def end(self, request: Hashable, now: float) -> None:
        """Gives the slot back, and learns what the request cost."""
        self._pass_time(now)
        admitted = self._admitted.pop(request)
        took, load = now - admitted.came, self._load - admitted.load
        if took <= 0:
            return
        cost = took * took / load
        self._costs.append(cost * OVERDUE if took >= admitted.seconds else cost)
        ordered = sorted(self._costs)
        self._cost = ordered[int(PERCENTILE * (len(ordered) - 1))]

    def _pass_time(self, now: float) -> None:
        self._load += len(self._admitted) * (now - self._now)
        self._now = now

    def _refusal(self, message: str, too_many: float) -> Overloaded:
        """`too_many` requests have to end first."""
        wait = too_many * fmean(self._costs) * 1000 if self._costs else 0.0
        after = round(min(max(wait, SHORTEST_WAIT_MS), LONGEST_WAIT_MS))
        hint = "ask again after retry_after_ms, allow more time (deadline_ms), or serve on more machines"
        return Overloaded(message, hint=hint, retry_after_ms=after)
