"""Questions a second with and without batches shared by concurrent questions, in one process.

    python benchmarks/batching.py [--questions 32] [--passages 5] [--words 30] [--base tiny] [--threads 1]

Each question is one step: a search (at once), its passages judged by the base in one label task, a reading (at once).
Without `BatchedRevelator` each question's passages are one pass of the engine; with it the passages of questions that
wait together are. Then the same for a task that generates, one prompt a caller. Triton's dynamic batching does the same
for the served model.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import time
from collections.abc import Sequence

import click

from revelator.trace import Passage
from serving.batching import BatchedRevelator
from serving.executor import Executor
from serving.models.engine import Engine
from serving.models.revelator_model import LocalRevelator
from serving.protocols import GenerateRequest, Reading, Revelator


class AtOnce:
    """A retriever and a generator that take no time."""

    def __init__(self, passages: int, words: int) -> None:
        self.found = [Passage(str(n), f"title {n}", "a word " * (words // 2)) for n in range(passages)]

    async def search(self, query: str, k: int) -> list[Passage]:
        return self.found

    async def answer(self, request: GenerateRequest) -> Reading:
        return Reading("", ("value",))


class Counted:
    """A revelator that counts its passes."""

    def __init__(self, revelator: Revelator) -> None:
        self.revelator = revelator
        self.passes = 0

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0):
        self.passes += 1
        return await self.revelator.complete(task, prompts, temperature=temperature)


async def rate(executor: Executor, questions: int, concurrent: int) -> float:
    """Questions a second, `concurrent` of them at any time."""
    waiting = iter(range(questions))

    async def client() -> None:
        for number in waiting:
            trace = await executor.run(f"Who wrote book {number}?", strategy="single")
            assert trace.outcome == "complete"

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrent)))
    return questions / (time.perf_counter() - began)


@click.command()
@click.option("--questions", default=32, show_default=True, help="Questions of one measurement.")
@click.option("--passages", default=5, show_default=True, help="Passages judged for a question.")
@click.option("--words", default=30, show_default=True, help="Words of a passage.")
@click.option("--base", default="tiny", show_default=True, help="The base: a folder, a Hub id or `tiny`.")
@click.option("--threads", default=1, show_default=True, help="Threads of the engine.")
@click.option("--repeats", default=3, show_default=True, help="Rounds; the median counts.")
def main(questions: int, passages: int, words: int, base: str, threads: int, repeats: int) -> None:
    """Questions a second, alone and batched, by how many are under way."""
    local = LocalRevelator(Engine(base, threads=threads))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}; base {base}, {threads} threads; {passages} passages of {words} words, n = {repeats}\n")
    print(f"{'concurrent':>10}{'alone /s':>12}{'batched /s':>12}{'ratio':>8}{'passes':>16}")
    services = AtOnce(passages, words)

    async def measure(concurrent: int) -> None:
        rates: tuple[list[float], list[float]] = [], []
        passes = [0, 0]
        for _ in range(repeats):
            for way in (0, 1):
                counted = Counted(local)
                executor = Executor(BatchedRevelator(counted) if way else counted, services, services)
                rates[way].append(await rate(executor, questions, concurrent))
                passes[way] = counted.passes
        alone, batched = map(statistics.median, rates)
        print(f"{concurrent:10}{alone:12.1f}{batched:12.1f}{batched / alone:8.2f}{f'{passes[0]} / {passes[1]}':>16}")

    for concurrent in (1, 4, 16, 64):
        asyncio.run(measure(concurrent))

    async def generate(concurrent: int) -> None:
        """A text each, up to the engine's limit of new tokens: an untrained base writes that many."""
        prompts = [f"Split the question number {number}:" for number in range(concurrent)]
        rates = []
        for revelator in (local, BatchedRevelator(local)):
            began = time.perf_counter()
            await asyncio.gather(*(revelator.complete("decompose", [prompt]) for prompt in prompts))
            rates.append(concurrent / (time.perf_counter() - began))
        print(f"{concurrent:10}{rates[0]:12.2f}{rates[1]:12.2f}{rates[1] / rates[0]:8.2f}")

    print(f"\ntexts a second, n = 1\n{'concurrent':>10}{'alone /s':>12}{'batched /s':>12}{'ratio':>8}")
    for concurrent in (1, 4, 16):
        asyncio.run(generate(concurrent))
    local.close()


if __name__ == "__main__":
    main()
