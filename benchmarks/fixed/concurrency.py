"""Many questions at a time: requests a second, and how soon a cancelled one is silent."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from fixed import LIMITS, FixedServices, run_sequentially
from revelator.limits import count_stages
from revelator.plans import parse
from revelator.trace import Passage
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources

LEVELS = (1, 16, 64)


async def measure_rate(ask: Callable[[], Awaitable[object]], level: int, rounds: int) -> float:
    """Requests a second of `level` clients, each of which asks `rounds` times."""

    async def client() -> None:
        for _ in range(rounds):
            await ask()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(level)))
    return level * rounds / (time.perf_counter() - began)


async def ask_evenly(ask: Callable[[], Awaitable[object]], spacing: float, count: int) -> None:
    """`count` questions that begin `spacing` seconds apart, however long each takes."""
    loop = asyncio.get_running_loop()
    began, asked = loop.time(), []
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number * spacing - loop.time()))
        asked.append(asyncio.create_task(ask()))
    await asyncio.gather(*asked)


async def measure_concurrency(name: str, plan: str, latency_ms: float, passages: int, level: int, rounds: int) -> str:
    services = FixedServices(latency_ms / 1000, passages)
    executor = Executor(services, Sources.of_index(services), services, LIMITS)
    ratios: list[float] = []

    async def ask() -> None:
        trace = await executor.run("q", plan=plan, strategy="compound")
        assert trace.outcome == "answered"
        ratios.append(trace.wall_ms / trace.critical_path_ms)

    await measure_rate(ask, level, 1)
    ratios.clear()
    ours = await measure_rate(ask, level, rounds)
    at_once = statistics.median(ratios)
    ratios.clear()
    await ask_evenly(ask, count_stages(parse(plan)) * latency_ms / 1000 / level, 4 * level * rounds)
    sequential = await measure_rate(lambda: run_sequentially(plan, services), level, 1)
    over_path = f"{at_once:13.3f}{statistics.median(ratios):13.3f}"
    return f"{name:12}{level:10}{ours:12.1f}{over_path}{sequential:19.1f}{ours / sequential:8.2f}"


class EndlessServices(FixedServices):
    """Searches that end only when they are cancelled; `all_live` is set once `wanted` of them are under way."""

    def __init__(self, wanted: int) -> None:
        super().__init__(0.0, 1)
        self.live = 0
        self.wanted = wanted
        self.all_live = asyncio.Event()
        self.last_end = 0.0

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        self.live += 1
        if self.live == self.wanted:
            self.all_live.set()
        try:
            return await asyncio.Event().wait()
        finally:
            self.live -= 1
            self.last_end = time.perf_counter()


async def measure_cancellation(plan: str, level: int) -> str:
    took: list[float] = []
    leaves = plan.count(" + ") + 1
    for _ in range(20):
        services = EndlessServices(level * leaves)
        executor = Executor(services, Sources.of_index(services), services, LIMITS)
        questions = [asyncio.create_task(executor.run("q", plan=plan, strategy="compound")) for _ in range(level)]
        await services.all_live.wait()
        began = time.perf_counter()
        for question in questions:
            question.cancel()
        await asyncio.wait(questions)
        assert services.live == 0
        took.append((services.last_end - began) * 1000)
    times = f"{min(took):8.2f}{statistics.median(took):8.2f}"
    return f"{level:4} questions of {leaves} leaves, {level * leaves:5} calls: {times}"
