"""Versions that change under a constant load of gRPC clients: failed requests, who answered, and how long it took.

    python benchmarks/switching.py [--switches 20] [--rate 6] [--rest 4] [--kills 0] [--seed 1]
        [--seconds S] [--home DIR]

A Triton server of its own on loopback serves the embedded base with random adapters 1 and 2. Questions (strategy
`single`: one retrieval, ten relevance judgements in one forward pass, the embedded reader) arrive at a constant rate,
whether or not earlier ones are answered, so a stall is seen by all that arrive in it. Meanwhile another process deploys
1 and 2 in turn. A question belongs to a switch if any of its time falls between the start and the end of a deploy.

Reported: failed questions; questions that two versions answered; questions that began after a deploy had ended, or
ended before it began, and were not answered by the version promoted then; p50, p99 and worst at rest and during a
switch. `--kills N` then kills N deploys with -9 at random moments, under the same load
(tests/serving/deploy/kill_deploys.py).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from fixed.load import serving

from revelator import registry
from revelator.client import AsyncClient
from revelator.errors import RevelatorError
from serving.deploy.deploy import deploy
from serving.retrieval import build_index
from tests.causal import TINY
from tests.serving.deploy import kill_deploys
from tests.serving.toy_model import PASSAGES, write_adapter

QUESTION = "Who directed Lantern Row?"


@dataclass(frozen=True)
class AskedQuestion:
    """Seconds on `time.monotonic`, from when the question was due; the versions that answered, or the error."""

    due: float
    ended: float
    version: str
    error: str = ""

    @property
    def ms(self) -> float:
        return (self.ended - self.due) * 1000


@dataclass(frozen=True)
class Switch:
    began: float
    ended: float
    version: str


def make_home(home: Path) -> None:
    """Registers two adapters, deploys the first, builds an index."""
    registry.connect(home)
    for seed in (1, 2):
        registry.register_adapter(write_adapter(home / "adapters" / str(seed), TINY, seed))
    deploy(home, registry.resolve(registry.NAME, 1))
    rows = [{"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(PASSAGES)]
    (home / "passages.jsonl").write_text("\n".join(map(json.dumps, rows)))
    build_index([home / "passages.jsonl"], home / "indexes" / "bm25")


async def ask_at_a_rate(url: str, rate: float, asked: list[AskedQuestion], enough: asyncio.Event) -> None:
    """Questions due every 1/rate seconds, each with a client call of its own, until `enough` is set."""
    async with AsyncClient(url, 60) as client, asyncio.TaskGroup() as questions:

        async def ask(due: float) -> None:
            version, error = "", ""
            try:
                answer = await client.ask(QUESTION, strategy="single")
                version = answer.trace.versions["revelator"]
                error = "" if answer.outcome == "answered" else answer.outcome
            except RevelatorError as failed:
                error = f"{type(failed).__name__}: {failed.message}"
            asked.append(AskedQuestion(due, time.monotonic(), version, error))

        due = time.monotonic()
        while not enough.is_set():
            questions.create_task(ask(due))
            due += 1 / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))


def deploy_version(home: Path, version: int) -> None:
    registry.connect(home)
    deploy(home, registry.resolve(registry.NAME, version))


async def switch_repeatedly(home: Path, switches: int, rest: float, end: float) -> list[Switch]:
    """Deploys by another process, with `rest` seconds before each and after the last."""
    loop, done = asyncio.get_running_loop(), []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        await loop.run_in_executor(process, deploy_version, home, 1)  # its imports; version 1 is in service
        for number in range(switches):
            if time.monotonic() > end:
                break
            await asyncio.sleep(rest)
            version, began = 2 - number % 2, time.monotonic()
            await loop.run_in_executor(process, deploy_version, home, version)
            done.append(Switch(began, time.monotonic(), str(version)))
        await asyncio.sleep(rest)
    return done


async def kill_and_repeat(home: Path, kills: int, seed: int, seconds: float) -> list[dict]:
    command = [sys.executable, kill_deploys.__file__, str(home), str(kills), str(seed), str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"kill_deploys ended with {process.returncode}")
    return [json.loads(line) for line in said.splitlines()]


def format_times(found: list[AskedQuestion]) -> str:
    ms = sorted(a.ms for a in found)
    if len(ms) < 2:
        return f"n {len(ms)}"
    p99 = statistics.quantiles(ms, n=100, method="inclusive")[98]
    return f"n {len(ms):5d}  p50 {statistics.median(ms):7.0f} ms  p99 {p99:7.0f} ms  worst {ms[-1]:7.0f} ms"


def find_misrouted(asked: list[AskedQuestion], switches: list[Switch]) -> list[AskedQuestion]:
    """Questions wholly between two deploys that the version of the earlier one did not answer."""
    found, served = [], "1"
    for before, after in zip([None, *switches], [*switches, None], strict=True):
        start, end = before.ended if before else 0.0, after.began if after else float("inf")
        served = before.version if before else served
        found += [a for a in asked if start <= a.due and a.ended <= end and a.version != served]
    return found


def print_report(asked: list[AskedQuestion], switches: list[Switch]) -> bool:
    """Prints the figures; whether no question failed and none was answered by a version that it should not be."""
    during = [a for a in asked if any(a.due < s.ended and s.began < a.ended for s in switches)]
    rest = [a for a in asked if a not in set(during)]
    failed = [a for a in asked if a.error]
    mixed = [a for a in asked if "," in a.version]
    wrong = find_misrouted(asked, switches)
    lasted = [s.ended - s.began for s in switches]
    print(
        f"switches          {len(switches)}, each {statistics.median(lasted):.1f} s (median), worst {max(lasted):.1f} s"
    )
    print(f"questions         {len(asked)}, failed {len(failed)}, answered by two versions {len(mixed)}")
    print(f"wrong version     {len(wrong)} of the questions that no switch touched")
    print(f"by version        { {v: sum(a.version == v for a in asked) for v in sorted({a.version for a in asked})} }")
    print(f"at rest           {format_times(rest)}")
    print(f"during a switch   {format_times(during)}")
    for a in failed[:5]:
        print(f"  failed: {a.error}")
    return not failed and not wrong


async def measure(
    home: Path, url: str, switches: int, rate: float, rest: float, kills: int, seed: int, seconds: float
) -> bool:
    good = True
    for part in ("switches", "kills"):
        asked: list[AskedQuestion] = []
        enough = asyncio.Event()
        load = asyncio.create_task(ask_at_a_rate(url, rate, asked, enough))
        if part == "switches" and switches:
            done = await switch_repeatedly(home, switches, rest, time.monotonic() + seconds)
        elif part == "kills" and kills:
            rows = await kill_and_repeat(home, kills, seed, seconds)
        enough.set()
        await load
        if part == "switches" and switches:
            good &= print_report(asked, done)
        elif part == "kills" and kills:
            hit = [row for row in rows if row["killed"]]
            failed = [a for a in asked if a.error]
            print(
                f"killed with -9    {len(hit)} of {len(rows)} deploys, seed {seed}; every one finished by the next run"
            )
            for step in sorted({row["step"] for row in hit}):
                print(f"  {sum(row['step'] == step for row in hit):3d} in the step: {step}")
            print(f"questions         {len(asked)}, failed {len(failed)}; {format_times(asked)}")
            for a in failed[:5]:
                print(f"  failed: {a.error}")
            good &= not failed
    return good


@click.command(help=__doc__)
@click.option("--switches", default=20, type=click.IntRange(0))
@click.option("--rate", default=6.0, help="Questions a second.")
@click.option("--rest", default=4.0, help="Seconds between two switches.")
@click.option("--kills", default=0, type=click.IntRange(0))
@click.option("--seed", default=1)
@click.option(
    "--seconds", default=3600.0, help="Begin no further switch, or kill, after so long; each part has so much."
)
@click.option("--triton", default="none", help="As of `revelator serve`.")
@click.option("--home", type=click.Path(path_type=Path), help="Folder to work in (default: a temporary one).")
def main(
    switches: int, rate: float, rest: float, kills: int, seed: int, seconds: float, triton: str, home: Path | None
) -> None:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; {rate:g} questions/s")
    with tempfile.TemporaryDirectory(prefix="switching-") as temporary:
        home = (home or Path(temporary)).resolve()
        make_home(home)
        with serving(home, "--index", str(home / "indexes" / "bm25"), "--triton", triton) as (running, _):
            good = asyncio.run(measure(home, running.grpc, switches, rate, rest, kills, seed, seconds))
    sys.exit(not good)


if __name__ == "__main__":
    main()
