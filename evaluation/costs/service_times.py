"""Measures the seconds of work of each service while real questions run, and checks what they predict.

A trace holds the time of every call. It counts work and no waiting if one question runs at a time, one leaf after the
other: `ONE_AT_A_TIME`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from evaluation.costs.model import STATIONS, Prices, ServiceTimes, count_demand, predict
from evaluation.harness.folder import describe_machine
from evaluation.harness.question_scores import count_cost
from evaluation.harness.run import ask_each
from evaluation.harness.systems import Ask
from revelator.errors import RevelatorError
from revelator.tasks import TASKS
from revelator.trace import Trace

ONE_AT_A_TIME = {"concurrency": 1}  # limits of a question


async def ask_all(ask: Ask, questions: Sequence[str], concurrency: int) -> list[Trace]:
    """Returns the traces of the questions that were not refused."""
    traces: list[Trace] = []

    def keep(question: str, outcome: Trace | RevelatorError) -> None:
        if isinstance(outcome, Trace):
            traces.append(outcome)

    await ask_each(ask, questions, str, keep, concurrency)
    return traces


def average_calls(traces: Sequence[Trace]) -> ServiceTimes:
    """Averages the seconds of a prompt of each task, of a search and of a reading; what a question took beside its
    calls is overhead."""
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for call in (call for trace in traces for node in trace.nodes for call in node.list_calls()):
        task = call["task"]
        name = task if task in TASKS else "search" if task.startswith("search") else "reading"
        seconds[name] += call["ms"] / 1000
        counts[name] += call["count"]
    tasks = {name: seconds[name] / count for name, count in counts.items() if count}
    search, reading = tasks.pop("search", 0.0), tasks.pop("reading", 0.0)
    beside = sum(trace.wall_ms for trace in traces) / 1000 - sum(seconds.values())
    overhead = max(0.0, beside) / max(1, len(traces))
    return ServiceTimes(tasks, search, reading, overhead, describe_machine()["machine"])


async def check_prediction(
    ask: Ask, questions: Sequence[str], times: ServiceTimes, concurrency: int
) -> dict[str, float]:
    """Asks `questions`, on which the service times were not measured, `concurrency` at a time. Returns predicted and
    measured questions a second; `error` is that of the prediction, relative to the measurement."""
    began = time.perf_counter()
    traces = await ask_all(ask, questions, concurrency)
    measured = len(questions) / (time.perf_counter() - began)
    demand = count_demand([count_cost(trace) for trace in traces], times)
    predicted = predict(demand, dict.fromkeys(STATIONS, 1), concurrency, Prices()).throughput
    return {
        "concurrency": concurrency,
        "questions": len(questions),
        "predicted": predicted,
        "measured": measured,
        "error": predicted / measured - 1,
    }
