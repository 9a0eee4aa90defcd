"""Laws of admission: what a server takes in, what it refuses because it would end late, and whose turn it is."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import Overloaded
from serving.triton.inside.admission import LONGEST_WAIT_MS, SHORTEST_WAIT_MS, Admission

CORES = 2
AT_ONCE = 6
COSTS = (0.03, 0.2, 0.2, 0.45, 0.45, 0.7, 1.0, 1.0, 1.2, 0.2)  # seconds of a core; as unlike as those of the world
CAPACITY = CORES / (sum(COSTS) / len(COSTS))
MINUTE = 60.0
QUANTUM = 0.02


class Selector(selectors.SelectSelector):
    """Nothing is waited for: time passes at once."""

    now = 0.0

    def select(self, timeout: float | None = None):
        self.now += timeout or 0.0
        return super().select(0)


class Simulation(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._selector_of_time = Selector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.now


def simulate(run: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=Simulation) as runner:
        runner.run(run)


@dataclass
class Machine:
    """Questions share the cores equally, each uses one at most, and besides waits for `elsewhere` seconds."""

    admission: Admission
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    costs: tuple[float, ...] = COSTS
    elsewhere: float = 0.0
    computing: int = 0
    used: float = 0.0
    looked: float = 0.0
    in_time: int = 0
    late: int = 0
    refused: int = 0

    @classmethod
    def make(cls, **settings) -> Machine:
        """Inside a simulation."""
        clock = asyncio.get_running_loop().time
        return cls(Admission(64, AT_ONCE, clock), **settings)

    def percent(self) -> float:
        now = asyncio.get_running_loop().time()
        share = self.used / (CORES * (now - self.looked)) if now > self.looked else 0.0
        self.used, self.looked = 0.0, now
        return 100 * share

    async def compute(self, cost: float) -> None:
        self.computing += 1
        try:
            while cost > 0:
                await asyncio.sleep(QUANTUM)
                done = QUANTUM * min(1.0, CORES / self.computing)
                self.used += done
                cost -= done
        finally:
            self.computing -= 1

    async def ask(self, seconds: float) -> None:
        slot = object()
        try:
            self.admission.admit(slot, seconds)
        except Overloaded as error:
            assert SHORTEST_WAIT_MS <= (error.retry_after_ms or 0) <= LONGEST_WAIT_MS
            self.refused += 1
            return
        try:
            async with asyncio.timeout(seconds), self.admission.turn():
                await asyncio.sleep(self.elsewhere)
                await self.compute(self.chance.choice(self.costs))
            self.in_time += 1
        except TimeoutError:
            self.late += 1
        finally:
            self.admission.end(slot)

    async def offer(self, rate: float, seconds: float, deadline: float) -> None:
        """Questions at random moments, and all their ends."""
        self.in_time = self.late = self.refused = 0
        cores = asyncio.create_task(self.admission.watch_cores(self.percent))
        async with asyncio.TaskGroup() as tasks:
            ends = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < ends:
                tasks.create_task(self.ask(deadline))
                await asyncio.sleep(self.chance.expovariate(rate))
        cores.cancel()

    @property
    def share_in_time(self) -> float:
        return self.in_time / (self.in_time + self.late)


@pytest.mark.parametrize("deadline", [10.0, 30.0])
@pytest.mark.parametrize("times", [1, 2, 4, 10])
def test_of_what_is_taken_in_19_of_20_end_in_time_and_the_machine_is_kept_busy(times: int, deadline: float) -> None:
    """From the first moment on, when nothing is known yet."""

    async def run() -> None:
        machine = Machine.make()
        await machine.offer(times * CAPACITY, 2 * MINUTE, deadline)
        assert machine.share_in_time >= 0.95
        assert machine.in_time >= (0.75 if times == 1 else 0.9) * CAPACITY * 2 * MINUTE
        assert machine.refused > 0 or times == 1

    simulate(run())


def test_after_an_overload_all_is_taken_in_that_the_machine_can_do() -> None:
    async def run() -> None:
        machine = Machine.make()
        await machine.offer(10 * CAPACITY, MINUTE, 10.0)
        await machine.offer(CAPACITY / 2, MINUTE / 2, 10.0)
        await machine.offer(CAPACITY / 2, 2 * MINUTE, 10.0)
        assert machine.refused <= 0.02 * machine.in_time and machine.share_in_time >= 0.98

    simulate(run())


def test_when_questions_become_dear_fewer_are_taken_in_and_they_end_in_time() -> None:
    async def run() -> None:
        machine = Machine.make()
        await machine.offer(2 * CAPACITY, MINUTE, 20.0)
        machine.costs = tuple(5 * cost for cost in COSTS)
        await machine.offer(2 * CAPACITY, MINUTE / 2, 20.0)  # they come to be known
        await machine.offer(2 * CAPACITY, 4 * MINUTE, 20.0)
        assert machine.share_in_time >= 0.9 and machine.in_time >= 0.75 * CAPACITY / 5 * 4 * MINUTE
        machine.costs = COSTS
        await machine.offer(2 * CAPACITY, MINUTE / 2, 20.0)
        await machine.offer(2 * CAPACITY, MINUTE, 20.0)
        assert machine.share_in_time >= 0.95 and machine.in_time >= 0.9 * CAPACITY * MINUTE

    simulate(run())


@pytest.mark.parametrize("deadline", [5.0, 30.0])
def test_an_endpoint_that_answers_many_at_a_time_comes_to_be_used(deadline: float) -> None:
    async def run() -> None:
        machine = Machine.make(costs=(0.02,), elsewhere=2.0)
        await machine.offer(10.0, MINUTE, deadline)
        await machine.offer(10.0, MINUTE, deadline)
        assert machine.refused <= 10 and machine.late == 0

    simulate(run())


def test_questions_that_hang_elsewhere_do_not_keep_others_from_their_turn() -> None:
    async def run() -> None:
        machine = Machine.make(elsewhere=1_000.0)
        async with asyncio.timeout(30):
            hanging = [asyncio.create_task(machine.ask(2_000.0)) for _ in range(5 * AT_ONCE)]
            cores = asyncio.create_task(machine.admission.watch_cores(machine.percent))
            async with machine.admission.turn():
                pass
        for task in (cores, *hanging):
            task.cancel()

    simulate(run())


def test_turns_are_taken_in_the_order_of_arrival_and_one_that_is_given_up_goes_to_the_next() -> None:
    async def run() -> None:
        admission = Admission(64, 1)
        order: list[int] = []
        gate = asyncio.Event()

        async def work(number: int) -> None:
            async with admission.turn():
                order.append(number)
                await gate.wait()

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[0].cancel()
        await asyncio.sleep(0)
        tasks[3].cancel()
        gate.set()
        await asyncio.wait(tasks)
        assert order == [0, 2, 4, 5]

    simulate(run())


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.booleans()), max_size=30))
def test_a_question_that_comes_alone_is_never_refused(questions) -> None:
    async def run() -> None:
        admission = Admission(1, clock=asyncio.get_running_loop().time)
        for slot, (took, seconds, fails) in enumerate(questions):
            admission.admit(slot, seconds)
            with suppress(ValueError):
                async with admission.turn():
                    await asyncio.sleep(took)
                    if fails:
                        raise ValueError
            admission.end(slot)
        assert admission.in_flight == 0

    simulate(run())


@given(st.floats(1e-2, 1e2), st.integers(1, 64), st.integers(1, 8))
def test_the_estimate_comes_to_what_questions_of_one_kind_take(took: float, before: int, at_once: int) -> None:
    async def run() -> None:
        machine = Admission(64, at_once, asyncio.get_running_loop().time)

        async def work() -> None:
            async with machine.turn():
                await asyncio.sleep(took)

        for _ in range(60):
            await asyncio.gather(*(work() for _ in range(at_once)))
        rounds = 1 + max(0, before - at_once + 1) / at_once
        estimate = machine._pace.estimate(before, at_once)
        assert 0.99 * took * rounds <= estimate <= 4 * took * rounds

    simulate(run())


@given(st.integers(1, 40))
def test_the_limit_holds_and_a_burst_of_which_nothing_is_known_is_taken_in(limit: int) -> None:
    admission = Admission(limit)
    for slot in range(limit):
        admission.admit(slot, 30.0)
    with pytest.raises(Overloaded, match=f"{limit} requests are in flight"):
        admission.admit("next", 30.0)
    admission.end(0)
    admission.admit("next", 30.0)


def test_a_short_deadline_is_refused_where_a_long_one_is_taken_in() -> None:
    async def run() -> None:
        machine = Machine.make(costs=(1.0,))
        for _ in range(5):
            await machine.ask(30.0)
        busy = [asyncio.create_task(machine.ask(30.0)) for _ in range(4)]
        await asyncio.sleep(0.1)
        await machine.ask(1.5)
        assert machine.refused == 1
        await asyncio.gather(machine.ask(30.0), *busy)
        assert machine.refused == 1 and machine.late == 0

    simulate(run())


def test_questions_that_are_given_up_at_once_teach_nothing() -> None:
    """Else a flood of them would let in more than can be answered."""

    async def run() -> None:
        machine = Machine.make(costs=(1.0,))
        for _ in range(5):
            await machine.ask(30.0)
        known = machine.admission._pace.estimate(20, AT_ONCE)
        for _ in range(200):
            task = asyncio.create_task(machine.ask(30.0))
            await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
        assert machine.admission._pace.estimate(20, AT_ONCE) == known

    simulate(run())
