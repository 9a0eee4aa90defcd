"""Seconds of work of each service, measured while real questions run, and a check of what they predict.

Each service stands behind a turn: a call waits for its turn, and the clock runs while it is served, never while it
waits. So the seconds are work, whatever waits for what.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from evaluation.costs.model import STATIONS, Prices, ServiceTimes, count_demand, predict
from evaluation.harness.folder import Cost, describe_machine
from evaluation.harness.question_scores import count_cost
from evaluation.harness.run import ask_each
from evaluation.harness.systems import Ask, Services
from revelator.errors import RevelatorError
from revelator.trace import Passage, Trace
from serving.protocols import Completion, GenerateRequest, Generator, Reading, Retriever, Revelator

Result = TypeVar("Result")


@dataclass
class Clock:
    """Seconds and units (prompts, searches, readings) by service, taken in turns."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    units: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def time(self, station: str, name: str, units: int, work: Callable[[], Awaitable[Result]]) -> Result:
        async with self._turns[station]:
            began = time.perf_counter()
            found = await work()
            self.seconds[name] += time.perf_counter() - began
            self.units[name] += units
            return found

    def mean(self, name: str) -> float:
        return self.seconds[name] / self.units[name] if self.units.get(name) else 0.0


@dataclass(frozen=True)
class TimedRevelator:
    inner: Revelator
    clock: Clock

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        work = lambda: self.inner.complete(task, prompts, temperature=temperature)  # noqa: E731
        return await self.clock.time("revelator", task, len(prompts), work)


@dataclass(frozen=True)
class TimedRetriever:
    inner: Retriever
    clock: Clock

    async def search(self, query: str, k: int) -> list[Passage]:
        return await self.clock.time("retriever", "search", 1, lambda: self.inner.search(query, k))


@dataclass(frozen=True)
class TimedGenerator:
    inner: Generator
    clock: Clock

    async def answer(self, request: GenerateRequest) -> Reading:
        return await self.clock.time("generator", "reading", 1, lambda: self.inner.answer(request))


def time_services(clock: Clock, services: Services) -> Services:
    """The same services behind a clock, as `evaluation.harness.systems.open_system` takes them."""
    revelator, retriever, generator = services
    return TimedRevelator(revelator, clock), TimedRetriever(retriever, clock), TimedGenerator(generator, clock)


@dataclass(frozen=True)
class Checked:
    """What was predicted for questions of their own, and what was measured: questions a second. `error` is the
    prediction's, relative to the measurement."""

    concurrency: int
    questions: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


async def measure(ask: Ask, clock: Clock, questions: Sequence[str]) -> ServiceTimes:
    """Asks the questions one after the other; `ask` is a system whose services stand behind `clock`."""
    await ask(questions[0])  # the first touches files and compiles
    clock.seconds.clear()
    clock.units.clear()
    began = time.perf_counter()
    await ask_each(ask, questions, str, lambda question, outcome: None, 1)
    wall = time.perf_counter() - began
    tasks = {name: clock.mean(name) for name in clock.units if name not in ("search", "reading")}
    beside = max(0.0, wall - sum(clock.seconds.values())) / len(questions)
    return ServiceTimes(tasks, clock.mean("search"), clock.mean("reading"), beside, describe_machine()["machine"])


async def check(ask: Ask, questions: Sequence[str], times: ServiceTimes, concurrency: int) -> Checked:
    """Asks the questions, `concurrency` at a time, without a clock in between, and predicts from what they called."""
    costs: list[Cost] = []

    def told(question: str, outcome: Trace | RevelatorError) -> None:
        if isinstance(outcome, Trace):
            costs.append(count_cost(outcome))

    began = time.perf_counter()
    await ask_each(ask, questions, str, told, concurrency)
    measured = len(questions) / (time.perf_counter() - began)
    demand = count_demand(costs, times)
    predicted = predict(demand, dict.fromkeys(STATIONS, 1), concurrency, Prices())
    return Checked(concurrency, len(questions), predicted.throughput, measured)
