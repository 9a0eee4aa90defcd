"""Laws of admission: what a server takes in, and what it refuses because it could not finish it in time."""

from __future__ import annotations

import heapq
import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import Overloaded
from serving.triton.admission import LONGEST_WAIT_MS, SHORTEST_WAIT_MS, UNKNOWN, Admission

CAPACITY = 2.0  # questions a second of the simulated machine
DEADLINE = 10.0


class Machine:
    """Questions that share one machine equally, as they come: a simulation of processor sharing with an own clock."""

    def __init__(self, admission: Admission, chance: random.Random) -> None:
        self.admission = admission
        self.chance = chance
        self.work: dict[int, float] = {}  # what each question in flight still needs, alone
        self.due: dict[int, float] = {}
        self.now = 0.0
        self.in_time = self.late = self.refused = 0
        self._ids = count()

    def advance(self, until: float) -> None:
        while self.work:
            soonest = min(self.work, key=self.work.__getitem__)
            ends = self.now + self.work[soonest] * len(self.work)
            cut = min(self.due, key=self.due.__getitem__)
            step = min(ends, self.due[cut], until)
            done = (step - self.now) / len(self.work)
            self.work = {id: left - done for id, left in self.work.items()}
            self.now = step
            if step == until and step < min(ends, self.due[cut]):
                return
            ended = soonest if ends <= self.due[cut] else cut
            self.in_time += ended == soonest
            self.late += ended != soonest
            del self.work[ended], self.due[ended]
            self.admission.end(ended, self.now)
        self.now = until

    def ask(self, seconds: float) -> None:
        id = next(self._ids)
        try:
            self.admission.admit(id, seconds, self.now)
        except Overloaded as error:
            assert SHORTEST_WAIT_MS <= error.retry_after_ms <= LONGEST_WAIT_MS
            self.refused += 1
            return
        self.work[id] = self.chance.gammavariate(4, 1 / 4 / CAPACITY)
        self.due[id] = self.now + seconds

    def offer(self, rate: float, until: float, seconds: float = DEADLINE) -> None:
        arrivals = [self.now]
        while (arrival := heapq.heappop(arrivals)) < until:
            self.advance(arrival)
            self.ask(seconds)
            heapq.heappush(arrivals, arrival + self.chance.expovariate(rate))
        self.advance(until)


@pytest.mark.parametrize("times", [1, 2, 4, 10])
def test_of_what_is_admitted_19_in_20_end_in_time_and_the_machine_is_kept_busy(times: int) -> None:
    machine = Machine(Admission(64), random.Random(7))
    machine.offer(times * CAPACITY, 600.0)
    ended = machine.in_time + machine.late
    assert machine.in_time >= 0.95 * ended
    assert machine.in_time >= 0.9 * min(times, 1) * CAPACITY * 600 * (0.95 if times == 1 else 1)
    if times >= 2:
        assert machine.refused > 0


def test_after_an_overload_it_takes_in_all_that_the_machine_can_do() -> None:
    machine = Machine(Admission(64), random.Random(3))
    machine.offer(10 * CAPACITY, 120.0)
    machine.advance(machine.now + 60)
    machine.refused = 0
    machine.offer(0.5 * CAPACITY, machine.now + 120, seconds=30.0)
    assert machine.refused == 0


def test_when_questions_become_dear_fewer_are_taken_in() -> None:
    machine = Machine(Admission(64), random.Random(5))
    machine.offer(20 * CAPACITY, 60.0, seconds=60.0)
    before = machine.admission.in_flight
    machine.chance = random.Random(5)
    slow = machine.chance.gammavariate
    machine.chance.gammavariate = lambda a, b: 5 * slow(a, b)  # type: ignore[method-assign]
    machine.offer(20 * CAPACITY, 400.0, seconds=60.0)
    assert machine.admission.in_flight < before / 2


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1e4))
def test_a_question_that_comes_alone_is_never_refused(took: float, seconds: float) -> None:
    admission = Admission(1)
    now = 0.0
    for id in range(10):
        admission.admit(id, seconds, now)
        now += took
        admission.end(id, now)
    assert admission.in_flight == 0


@given(st.integers(1, 40))
def test_the_limit_holds_and_a_burst_before_anything_is_known_is_bounded(limit: int) -> None:
    admission = Admission(limit)
    for id in range(min(limit, UNKNOWN)):
        admission.admit(id, 30.0, 0.0)
    with pytest.raises(Overloaded):
        admission.admit("next", 30.0, 0.0)


def test_a_short_deadline_is_refused_where_a_long_one_is_taken_in() -> None:
    admission = Admission(64)
    admission.admit(0, 30.0, 0.0)
    admission.end(0, 1.0)
    admission.admit(1, 30.0, 1.0)
    admission.admit(2, 30.0, 1.0)
    with pytest.raises(Overloaded, match=r"about 3\.0 s with 2 in flight, and 0\.5 s are allowed") as refused:
        admission.admit(3, 0.5, 1.0)
    assert refused.value.retry_after_ms == pytest.approx(2_650)
    admission.admit(3, 30.0, 1.0)
