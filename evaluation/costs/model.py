"""Predicts the cost of strategies on other hardware: counted calls × measured service times → throughput and money.

A question visits three stations: the revelator (a GPU, or a core), the retriever and the generator. Its demand on one
is the sum over its calls of the measured seconds of such a call (`ServiceTimes`). A closed queueing network with these
demands, solved by mean value analysis (Reiser and Lavenberg 1980), predicts how many questions a second `concurrency`
questions in flight give. A station of m equal servers is one of 1/m of the demand and a delay of the rest (Seidmann,
Schweitzer and Shalev-Oren 1987). Parts of one question that run at the same time are not told apart: with few questions
in flight a parallel plan is a little faster than predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.harness.folder import Cost
from revelator.errors import DataError

MONTH_HOURS = 730
STATIONS = ("revelator", "retriever", "generator")


@dataclass(frozen=True)
class ServiceTimes:
    """Seconds of work of one prompt of each revelator task, one search, one reading; `overhead` is what a question
    takes beside them in the executor. `machine` says where they were measured."""

    tasks: Mapping[str, float]
    search: float
    reading: float
    overhead: float = 0.0
    machine: str = ""


@dataclass(frozen=True)
class Prices:
    """Money an hour of a GPU, and of 1,000 calls of a generator that is paid by the call."""

    gpu_hour: float = 0.0
    calls: float = 0.0


@dataclass(frozen=True)
class Demand:
    """Mean seconds of work of one question at each station, and how often it calls the generator."""

    seconds: Mapping[str, float]
    overhead: float
    generator_calls: float


@dataclass(frozen=True)
class Prediction:
    """`throughput` in questions a second, `latency` in seconds, `bottleneck` the station that limits, `utilisation` its
    share of time at work; `cost` of 1,000 questions in the money of the prices."""

    gpus: int
    concurrency: int
    throughput: float
    latency: float
    bottleneck: str
    utilisation: float
    cost: float


def count_demand(costs: Sequence[Cost], times: ServiceTimes) -> Demand:
    """Averages the work of questions. Raises DataError if there are none, or if the time of a task was not measured."""
    count = len(costs)
    if not count:
        raise DataError("no question's calls were counted", hint="predict from a run that asked a system")
    if unknown := {task for cost in costs for task in cost.model_calls} - set(times.tasks):
        hint = "measure with questions that need it: revelator eval cost measure"
        raise DataError(f"the seconds of {', '.join(sorted(unknown))} were not measured", hint=hint)
    prompts = sum(times.tasks[task] * n for cost in costs for task, n in cost.model_calls.items())
    calls = sum(cost.generator_calls for cost in costs) / count
    return Demand(
        {
            "revelator": prompts / count,
            "retriever": times.search * sum(cost.retrievals for cost in costs) / count,
            "generator": times.reading * calls,
        },
        times.overhead,
        calls,
    )


def predict(demand: Demand, servers: Mapping[str, int], concurrency: int, prices: Prices) -> Prediction:
    """Predicts throughput, latency and cost with `servers` at each station; the servers of the revelator are the
    GPUs."""
    queues = {name: seconds / servers[name] for name, seconds in demand.seconds.items()}
    delay = demand.overhead + sum(demand.seconds[name] - queue for name, queue in queues.items())
    throughput, latency = analyse_mean_values(list(queues.values()), delay, concurrency)
    limit = max(queues, key=queues.__getitem__)
    hours = 1000 / throughput / 3600 if throughput else float("inf")
    gpus = servers["revelator"] if demand.seconds["revelator"] else 0  # who does not ask it rents none
    money = gpus * prices.gpu_hour * hours + demand.generator_calls * prices.calls
    return Prediction(
        servers["revelator"], concurrency, throughput, latency, limit, min(1.0, throughput * queues[limit]), money
    )


@dataclass(frozen=True)
class Sizing:
    """What serves `rate` questions a second: `servers` of each station, the index that each retriever holds, and what
    the GPUs and the generator's calls cost for a month of 730 hours."""

    rate: float
    passages: int
    servers: Mapping[str, int]
    index_gb: float
    month: float


@dataclass(frozen=True)
class Load:
    """Questions a second, and passages to search. `busy` is the share of its time that a server may be at work: the
    rest is for peaks, and for queues to stay short. `least` servers of a station are kept, so that one may fail."""

    rate: float
    passages: int = 0  # as many as the index has
    busy: float = 0.6
    least: int = 2


def size_deployment(demand: Demand, load: Load, prices: Prices, index: Mapping[str, int]) -> Sizing:
    """`index` holds the `passages` and `bytes` of the index that was measured. A search by words reads the postings of
    its terms, so its seconds grow as the corpus does; so do the bytes."""
    growth = load.passages / index["passages"] if load.passages and index.get("passages") else 1.0
    seconds = {**demand.seconds, "retriever": demand.seconds["retriever"] * growth}
    servers = {name: max(load.least, math.ceil(load.rate * each / load.busy)) for name, each in seconds.items() if each}
    calls = demand.generator_calls * prices.calls / 1000 * load.rate * MONTH_HOURS * 3600
    month = servers.get("revelator", 0) * prices.gpu_hour * MONTH_HOURS + calls
    passages = load.passages or index.get("passages", 0)
    return Sizing(load.rate, passages, servers, index.get("bytes", 0) * growth / 1e9, month)


def analyse_mean_values(demands: Sequence[float], delay: float, customers: int) -> tuple[float, float]:
    """Solves a closed network of single-server stations with `customers` in it: returns throughput and the seconds of
    one visit, exact for exponential service times. `demands` and `delay` are seconds."""
    lengths = [0.0] * len(demands)
    throughput, latency = 0.0, delay
    for inside in range(1, customers + 1):
        waits = [demand * (1 + length) for demand, length in zip(demands, lengths, strict=True)]
        latency = delay + sum(waits)
        throughput = inside / latency if latency else float("inf")
        lengths = [throughput * wait for wait in waits]
    return throughput, latency
