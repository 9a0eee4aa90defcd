"""A service under steady load for long: `python benchmarks/soak.py [--minutes 60] [--triton none|local]`.

It serves the documents of `examples/faculty` with the embedded models and asks its questions at random moments
(Poisson) at `--share` of the capacity, which it measures first with four clients for a minute. Every ten seconds it
notes memory and open files of the service with its children. Printed are the slopes of both from the second minute on,
by least squares with an interval, and the times of the first and of the last five minutes. Client and service share
the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import psutil
from fixed.load import quantile, serving
from scipy.stats import linregress

from revelator.client import AsyncClient
from revelator.errors import RevelatorError
from serving.retrieval import build_index

FACULTY = Path(__file__).parents[1] / "examples" / "faculty"
LOOK_SECONDS = 10.0
PART = 300.0  # seconds of the first and of the last answers
MEBIBYTE = 2**20


@dataclass
class Seen:
    """What was asked, with the second it was asked at and the seconds it took; and what was looked at."""

    answers: list[tuple[float, float]] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    looks: list[tuple[float, float, int]] = field(default_factory=list)  # second, MiB, open files


def read_questions() -> list[str]:
    with (FACULTY / "questions.csv").open(newline="", encoding="utf-8") as file:
        return [row["question"] for row in csv.DictReader(file)]


async def ask(client: AsyncClient, question: str, seen: Seen, began: float) -> None:
    start = time.perf_counter()
    try:
        await client.ask(question)
    except RevelatorError as error:
        seen.errors[type(error).__name__] += 1
    else:
        seen.answers.append((start - began, time.perf_counter() - start))


async def measure_capacity(client: AsyncClient, questions: list[str], clients: int = 4, seconds: float = 60.0) -> float:
    """Questions a second of clients that ask again as soon as they are answered."""
    asked, seen, began = cycle(questions), Seen(), time.perf_counter()

    async def again() -> None:
        while time.perf_counter() - began < seconds:
            await ask(client, next(asked), seen, began)

    await asyncio.gather(*(again() for _ in range(clients)))
    return len(seen.answers) / (time.perf_counter() - began)


async def look_on(process: psutil.Process, seen: Seen, began: float) -> None:
    while True:
        family = [process, *process.children(recursive=True)]
        memory = sum(member.memory_info().rss for member in family) / MEBIBYTE
        seen.looks.append((time.perf_counter() - began, memory, sum(member.num_fds() for member in family)))
        await asyncio.sleep(LOOK_SECONDS)


async def soak(url: str, process: psutil.Process, given: argparse.Namespace) -> None:
    chance, seen, questions = random.Random(given.seed), Seen(), read_questions()
    async with AsyncClient(url) as client:
        rate = given.share * await measure_capacity(client, questions)
        print(f"{rate:.2f} questions/s, {given.share:.0%} of the capacity, {given.minutes:g} minutes", flush=True)
        began = time.perf_counter()
        looking = asyncio.create_task(look_on(process, seen, began))
        async with asyncio.TaskGroup() as tasks:
            for question in cycle(questions):
                if time.perf_counter() - began > 60 * given.minutes:
                    break
                tasks.create_task(ask(client, question, seen, began))
                await asyncio.sleep(chance.expovariate(rate))
        looking.cancel()
    report(seen)


def report(seen: Seen) -> None:
    print(f"{len(seen.answers)} answers, {dict(seen.errors) or 'no error'}")
    steady = [look for look in seen.looks if look[0] >= 60]
    for name, place in (("memory, MiB", 1), ("open files", 2)):
        values = [look[place] for look in steady]
        line = linregress([look[0] / 3600 for look in steady], values)
        slope = f"{line.slope:+.1f} ± {1.96 * line.stderr:.1f} an hour"
        print(f"{name:12} {values[0]:.0f} to {values[-1]:.0f}, most {max(values):.0f}, slope {slope}")
    end = seen.looks[-1][0]
    for name, times in (
        ("first", [took for at, took in seen.answers if at < PART]),
        ("last", [took for at, took in seen.answers if at >= end - PART]),
    ):
        p50, p99 = statistics.median(times), quantile(times, 0.99)
        print(f"{name} five minutes: p50 {p50:.2f} s, p99 {p99:.2f} s, n = {len(times)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--share", type=float, default=0.8, help="of the capacity")
    parser.add_argument("--triton", default="none", help="as of `revelator serve`")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the run, --triton {given.triton}")
    with tempfile.TemporaryDirectory() as folder:
        home, index = Path(folder) / "home", Path(folder) / "index"
        home.mkdir()
        build_index([FACULTY / "documents"], index)
        with serving(home, "--index", str(index), "--triton", given.triton) as (running, process):
            asyncio.run(soak(running.grpc, process, given))


if __name__ == "__main__":
    main()
