"""Good, bad, cancelled and slow questions mixed for a long time: `python benchmarks/soak.py runs/demo --minutes 30`.

It takes a folder with a deployed version (`make demo` makes runs/demo), whose server is started and ended here. First
come a few times as many questions at once as the server admits: what a process has needed at its fullest it keeps, and
at random moments that height would be reached late. Each minute it notes what the server and each model's process hold:
resident memory without what they share, open files, threads and shared memory. Between the first fifth of the time
after warming up and the last, memory and open files may differ by 5 %; when the server has ended nothing of it is left.
Exit status 1 when that is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import aclosing, suppress
from pathlib import Path

import psutil
from fixed.server import find_processes, measure_memory

from revelator.client import AsyncClient
from revelator.errors import RevelatorError
from serving.triton.repository import Settings
from serving.triton.serve import serve_home
from serving.triton.server import SHARED_MEMORY, read_ports

TOPICS = ("river", "film", "singer", "bridge", "novel", "island", "battle", "painter", "university", "comet")
WARM_UP = 0.2  # of the time; a fifth of what is left is compared with the last fifth
SHARE = 0.05
FULL, TIMES = 64, 4  # requests that the server admits at once; how often it is filled at the beginning
Sample = dict[str, dict[str, float]]


def make_question(chance: random.Random) -> str:
    return f"Which {chance.choice(TOPICS)} is older than the {chance.choice(TOPICS)} of {chance.randrange(10**6)}?"


async def ask_good(client: AsyncClient, chance: random.Random) -> None:
    plan = f"{make_question(chance)} * Who wrote about {{it}}?"
    await client.ask(make_question(chance), **chance.choice([{"strategy": "single"}, {"plan": plan}]))


async def ask_streamed(client: AsyncClient, chance: random.Random) -> None:
    async for _ in client.stream(make_question(chance), strategy="single"):
        pass


async def ask_bad(client: AsyncClient, chance: random.Random) -> None:
    wrong = [{"plan": "Where was {x} born?"}, {"plan": "A ) B"}, {"strategy": "guess"}, {"limits": {"leaves": -1}}]
    await client.ask(chance.choice([make_question(chance), "", "q" * 3000]), **chance.choice(wrong))


async def ask_and_cancel(client: AsyncClient, chance: random.Random) -> None:
    async with asyncio.timeout(chance.uniform(0.005, 0.5)):
        await client.ask(make_question(chance), strategy=chance.choice(["compile", "single"]))


async def leave_stream(client: AsyncClient, chance: random.Random) -> None:
    async with aclosing(client.stream(make_question(chance), strategy="single")) as events:
        async for event in events:
            if event.kind == "retrieved":
                return


async def ask_slow(client: AsyncClient, chance: random.Random) -> None:
    plan = " + ".join(make_question(chance) for _ in range(6))
    await client.ask(make_question(chance), plan=plan, deadline_ms=chance.choice([300, 20_000]))


KINDS = (ask_good, ask_streamed, ask_bad, ask_and_cancel, leave_stream, ask_slow)


async def ask_one(client: AsyncClient, chance: random.Random, outcomes: Counter[str]) -> None:
    kind = chance.choice(KINDS)
    try:
        await kind(client, chance)
        outcome = "answered"
    except RevelatorError as error:
        outcome = type(error).__name__
    except TimeoutError:
        outcome = "given up"
    outcomes[f"{kind.__name__}: {outcome}"] += 1


async def fill_server(client: AsyncClient, chance: random.Random) -> None:
    for kind in (ask_good, ask_streamed, ask_slow) * TIMES:
        await asyncio.gather(*(kind(client, chance) for _ in range(FULL)), return_exceptions=True)


async def soak(url: str, pid: int, shared: str, minutes: float, rate: float) -> tuple[list[Sample], Counter[str]]:
    chance, outcomes, samples = random.Random(1), Counter[str](), list[Sample]()
    asked: set[asyncio.Task[None]] = set()
    async with AsyncClient(url) as client:
        await fill_server(client, chance)
        began = time.monotonic()
        while (now := time.monotonic() - began) < minutes * 60:
            if now >= 60 * len(samples):
                samples.append(measure_resources(pid, shared))
                print(f"{now / 60:5.1f} min {format_sample(samples[-1])}  {outcomes.total()} asked", flush=True)
            task = asyncio.create_task(ask_one(client, chance, outcomes))
            asked.add(task)
            task.add_done_callback(asked.discard)
            await asyncio.sleep(chance.expovariate(rate))
        await asyncio.gather(*asked)
    samples.append(measure_resources(pid, shared))
    return samples, outcomes


def measure_resources(pid: int, shared: str) -> Sample:
    found: Sample = {}
    for name, process in find_processes(pid).items():
        with suppress(psutil.Error):
            counts = {"files": process.num_fds(), "threads": process.num_threads()}
            found[name] = {"MB": measure_memory(process), **counts}
    regions = list(SHARED_MEMORY.glob(f"{shared}*"))
    found["/dev/shm"] = {"MB": sum(region.stat().st_size for region in regions) / 2**20, "files": len(regions)}
    return found


def format_sample(sample: Sample) -> str:
    return ", ".join(f"{name} {values['MB']:.1f} MB {values['files']:.0f} files" for name, values in sample.items())


def print_growth(samples: list[Sample]) -> bool:
    """Prints what was held early and late, and whether that is flat."""
    warm = samples[int(len(samples) * WARM_UP) :]
    share = max(1, len(warm) // 5)
    flat = True
    for name in samples[-1]:
        for what in samples[-1][name]:
            early, late = (statistics.median(s[name][what] for s in part) for part in (warm[:share], warm[-share:]))
            grown = late / early - 1 if early else 0.0
            fine = grown <= SHARE or what == "threads"
            flat &= fine
            print(f"{name:16}{what:8}{early:9.1f}{late:9.1f}  {grown:+7.1%}  {'flat' if fine else 'NOT FLAT'}")
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=4.0, help="questions a second, at random moments")
    given = parser.parse_args()
    with serve_home(given.home, read_ports("auto"), Settings()) as (server, running):
        samples, outcomes = asyncio.run(soak(running.grpc, server.pid, server.regions, given.minutes, given.rate))
        children = psutil.Process(server.pid).children(recursive=True)
    flat = print_growth(samples)
    left_over = [region.name for region in SHARED_MEMORY.glob(f"{server.regions}*")]
    _, alive = psutil.wait_procs(children, timeout=10)
    print("\n".join(f"{count:7} {name}" for name, count in sorted(outcomes.items())))
    print(f"after the end: {len(left_over)} shared-memory regions, {len(alive)} processes")
    sys.exit(0 if flat and not left_over and not alive else 1)


if __name__ == "__main__":
    main()
