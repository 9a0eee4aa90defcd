"""Measures the seconds of work of each service while real questions run, and checks what they predict.

Calls of one service take turns. The clock runs while a call is served and never while it waits, so it counts work.
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
    """Counts seconds and units (prompts, searches, readings) by service; calls of one service take turns."""

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
    """Puts services behind a clock, for `evaluation.harness.systems.open_system`."""
    revelator, retriever, generator = services
    return TimedRevelator(revelator, clock), TimedRetriever(retriever, clock), TimedGenerator(generator, clock)


@dataclass(frozen=True)
class ThroughputCheck:
    """Predicted and measured questions a second, of questions that the service times were not measured on. `error` is
    that of the prediction, relative to the measurement."""

    concurrency: int
    questions: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


async def measure_services(ask: Ask, clock: Clock, questions: Sequence[str]) -> ServiceTimes:
    """Asks the questions one after the other and returns the service times; the services of `ask` stand behind
    `clock`."""
    await ask(questions[0])  # the first touches files and compiles
    clock.seconds.clear()
    clock.units.clear()
    began = time.perf_counter()
    await ask_each(ask, questions, str, lambda question, outcome: None, 1)
    wall = time.perf_counter() - began
    tasks = {name: clock.mean(name) for name in clock.units if name not in ("search", "reading")}
    beside = max(0.0, wall - sum(clock.seconds.values())) / len(questions)
    return ServiceTimes(tasks, clock.mean("search"), clock.mean("reading"), beside, describe_machine()["machine"])


async def check_prediction(
    ask: Ask, questions: Sequence[str], times: ServiceTimes, concurrency: int
) -> ThroughputCheck:
    """Asks the questions, `concurrency` at a time, without a clock, and compares the throughput with the prediction."""
    costs: list[Cost] = []

    def add_cost(question: str, outcome: Trace | RevelatorError) -> None:
        if isinstance(outcome, Trace):
            costs.append(count_cost(outcome))

    began = time.perf_counter()
    await ask_each(ask, questions, str, add_cost, concurrency)
    measured = len(questions) / (time.perf_counter() - began)
    demand = count_demand(costs, times)
    predicted = predict(demand, dict.fromkeys(STATIONS, 1), concurrency, Prices())
    return ThroughputCheck(concurrency, len(questions), predicted.throughput, measured)
