"""What the executor adds to a plan whose every leaf takes the same time.

    python benchmarks/executor.py [--latency 20] [--repeats 20] [--passages 1]

Four ways through the same plan, in turn, in one process whose garbage collector is set as the server's:

* bare: a task a leaf that waits for its producers and sleeps; what asyncio and the machine take by themselves;
* executor: the plan as a tree, run by `PlanRun` with binding and trace, each leaf a sleep;
* question: the whole way, the plan's text parsed and checked, three services called a leaf (retrieval sleeps, the
  others answer at once), answers merged;
* gRPC: the same asked of the service's front by our client, in the same process: admission, options and the trace both
  ways come on top.

`/path` is the wall time over the critical path that the run's own trace measured, median of the repeats: what the
executor adds to its leaves. The other columns stand against the nominal critical path, stages × latency, best and
median; a timer of the event loop fires up to a millisecond late, which is why even bare is above 1. Processor time is
that of leaves that wait for nothing.

Then the whole way for 1, 16 and 64 questions at a time: requests a second of clients that each ask again at once, all
together (the loop is saturated), `/path` of each question so, and `/path` when as many questions are under way but
begin evenly spaced; and the same leaves one after the other (each question a task, its leaves depth first). Last, how
long the calls of a cancelled question live on.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from fixed import LIMITS, FixedServices, choose_answer, list_plans, run_sequentially
from fixed.concurrency import LEVELS, measure_cancellation, measure_concurrency

from revelator.client import AsyncClient
from revelator.limits import count_stages
from revelator.plans import Expression, bind, check, list_leaves, parse
from revelator.trace import Node
from serving.executor.executor import Executor
from serving.executor.recording import Recorder
from serving.executor.scheduler import PlanRun
from serving.home.config import ServingConfig
from serving.knowledge.sources import Sources
from serving.latency import tune_collector
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.releases import Traffic
from serving.protocols import NoModel
from serving.service.access import Tokens
from serving.service.grpc_front import bind_grpc, serve_grpc
from serving.service.models import Models
from serving.service.questions import Questions


async def run_bare(sources: Sequence[Mapping[str, int]], latency: float) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def leaf(producers: set[int]) -> None:
        for producer in producers:
            await tasks[producer]
        if latency:
            await asyncio.sleep(latency)

    tasks += [asyncio.create_task(leaf(set(source.values()))) for source in sources]
    await asyncio.gather(*tasks)


async def run_plan(expression: Expression, latency: float) -> float:
    """The critical path in milliseconds."""

    async def answer(node: Node, work: object) -> None:
        if latency:
            await asyncio.sleep(latency)
        node.answers = [choose_answer(node.asked or node.question)]

    recorder = Recorder("q", "auto")
    await PlanRun(expression, answer, recorder, LIMITS).run()
    trace = recorder.finish()
    assert all(node.status == "ok" for node in trace.nodes)
    return trace.critical_path_ms


@dataclass(frozen=True)
class Times:
    """Milliseconds, one a repeat."""

    wall: list[float]
    processor: list[float]
    path: list[float]  # the critical path, where the way has a trace

    def format_against(self, nominal: float) -> str:
        return f"{min(self.wall) / nominal:8.3f}{statistics.median(self.wall) / nominal:8.3f}"

    def format_over_path(self) -> str:
        return f"{statistics.median(w / p for w, p in zip(self.wall, self.path, strict=True)):10.3f}"


async def measure(ways: Sequence[Callable[[], Awaitable[float | None]]], repeats: int) -> list[Times]:
    """Each way once a round, so that what else the machine does meets all of them alike; two rounds do not count."""
    times = [Times([], [], []) for _ in ways]
    for number in range(repeats + 2):
        for way, found in zip(ways, times, strict=True):
            began, work = time.perf_counter(), time.process_time()
            path = await way()
            if number >= 2:
                found.wall.append((time.perf_counter() - began) * 1000)
                found.processor.append((time.process_time() - work) * 1000)
                found.path.append(path or math.nan)
    return times


@asynccontextmanager
async def asking_over_grpc(services: FixedServices) -> AsyncIterator[AsyncClient]:
    """A client of a service whose executor asks `services`."""
    planner = PlannerConfig(url="http://127.0.0.1:9/v1", model="none")  # plans are given: nobody is asked
    with TemporaryDirectory() as home:
        models = Models(NoModel(), services, None, None)
        questions = Questions(ServingConfig(planner=planner, judge="none"), Traffic(Path(home)), models)
        questions.limits = LIMITS
        sources, turn = Sources.of_index(services), questions.admission.turn
        questions.executor = Executor(services, sources, services, LIMITS, on_finish=questions.record, turn=turn)
        tokens = Tokens("none")
        server, port = bind_grpc(LIMITS, tokens, "127.0.0.1", 0)
        async with serve_grpc(server, questions, tokens), AsyncClient(f"127.0.0.1:{port}") as client:
            yield client


async def compare(name: str, plan: str, latency_ms: float, passages: int, repeats: int) -> tuple[str, str]:
    """One row of walls and one of processor times."""
    expression, latency = parse(plan), latency_ms / 1000
    sources = bind(expression).sources

    async def question(services: FixedServices) -> float:
        trace = await Executor(services, Sources.of_index(services), services, LIMITS).run(
            "q", plan=plan, strategy="compound"
        )
        assert trace.outcome == "answered"
        return trace.critical_path_ms

    async def language() -> None:
        check(parse(plan))

    slow, instant = FixedServices(latency, passages), FixedServices(0.0, passages)
    async with asking_over_grpc(slow) as client:

        async def ask() -> float:
            answer = await client.ask("q", plan=plan, strategy="compound")
            assert answer.outcome == "answered"
            return answer.trace.critical_path_ms

        walls = await measure(
            [lambda: run_bare(sources, latency), lambda: run_plan(expression, latency), lambda: question(slow), ask],
            repeats,
        )
    began = time.perf_counter()
    await run_sequentially(plan, slow)
    sequential = time.perf_counter() - began
    busy = await measure(
        [lambda: run_bare(sources, 0.0), lambda: run_plan(expression, 0.0), language, lambda: question(instant)],
        repeats,
    )
    stages, count = count_stages(expression), len(list_leaves(expression))
    ratios = "".join(times.format_over_path() for times in walls[1:])
    ratios += "".join(times.format_against(stages * latency_ms) for times in walls)
    costs = "".join(f"{min(times.processor) * 1000 / count:12.1f}" for times in busy)
    return (
        f"{name:12}{stages:7}{stages * latency_ms:8.0f}{ratios}{sequential * 1000:12.0f}",
        f"{name:12}{costs}",
    )


@click.command()
@click.option("--latency", default=20.0, show_default=True, help="Milliseconds that a leaf takes.")
@click.option("--repeats", default=20, show_default=True, help="Measured runs of each plan, after two that are not.")
@click.option("--passages", default=1, show_default=True, help="Passages that a leaf retrieves and has judged.")
@click.option("--rounds", default=5, show_default=True, help="Questions that each of those at a time asks in turn.")
def main(latency: float, repeats: int, passages: int, rounds: int) -> None:
    """Wall time against the critical path, and what a leaf costs."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, Python {platform.python_version()}; {passages} passages, n = {repeats}\n")
    print(f"leaves of {latency:g} ms: wall / path, wall / nominal (best and median); sequential in ms")
    print(
        f"{'plan':12}{'stages':>7}{'ms':>8}{'executor':>10}{'question':>10}{'gRPC':>10}{'bare':>16}{'executor':>16}"
        f"{'question':>16}{'gRPC':>16}{'sequential':>12}"
    )
    tune_collector()
    costs = []
    for name, plan in list_plans().items():
        wall, cost = asyncio.run(compare(name, plan, latency, passages, repeats))
        print(wall)
        costs.append(cost)
    print("\nprocessor time, µs a leaf, best")
    print(f"{'plan':12}{'bare':>12}{'executor':>12}{'language':>12}{'question':>12}")
    print("\n".join(costs))
    print(f"\nquestions at a time, leaves of {latency:g} ms (rounds: {rounds})")
    columns = f"{'requests/s':>12}{'wall / path':>13}{'paced':>13}{'leaf after leaf/s':>19}{'ratio':>8}"
    print(f"{'plan':12}{'at a time':>10}{columns}")
    for name in ("1 leaf", "tree of 8"):
        for level in LEVELS:
            print(asyncio.run(measure_concurrency(name, list_plans()[name], latency, passages, level, rounds)))
    print("\nms from cancelling to the end of the last call (best and median of 20)")
    for level in LEVELS:
        print(asyncio.run(measure_cancellation(list_plans()["list of 64"], level)))


if __name__ == "__main__":
    main()
