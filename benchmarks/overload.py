"""More questions than a server can answer: `python benchmarks/overload.py`, about seven minutes.

It makes a home folder (a world of 2,000 questions, its index, an adapter of the embedded base that changes nothing),
serves it, and asks questions of the world's test split that are complete when asked alone: first by `--clients` who ask
again as soon as they are answered, which is the capacity; then at random moments (Poisson) at 1, 2, 4 and 10 times
that, whatever becomes of them. A question counts when its answer is complete within the deadline. Goodput is their
number over the time until the last of them. Client, server and models share the machine's cores: what is asked ten
times as often takes more of them, so goodput and capacity are also compared as far as asking has left the cores to the
server.

Exit status 1 when fewer than 95 % of the admitted are complete in time, goodput is below 90 % of the capacity, or the
99th percentile of refusals is above 20 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import grpc
from fixed.load import METHOD, quantile, serving
from tritonclient.grpc import service_pb2

from tests.causal import TINY

TIMES = (1.0, 2.0, 4.0, 10.0)
COMPLETE, GOODPUT, REFUSED_MS = 0.95, 0.9, 20.0
TRIED = 120  # questions that are asked alone at first


@dataclass
class Outcomes:
    """What became of the questions that were put. `in_time`: seconds of each answer that was complete in time."""

    in_time: list[float] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    refused: list[float] = field(default_factory=list)  # milliseconds
    seconds: float = 0.0  # from the first question to the last answer that counts
    asking: float = 0.0  # share of the cores' time that putting the questions took

    @property
    def admissions(self) -> int:
        return len(self.in_time) + self.others.total()

    @property
    def goodput(self) -> float:
        return len(self.in_time) / self.seconds

    @property
    def goodput_of_server(self) -> float:
        """A second of the cores that asking has left."""
        return self.goodput / (1 - self.asking)

    def record_asking(self, began: float, used: float) -> None:
        """Since `began` (time.perf_counter), when this process had used `used` seconds of the cores."""
        cores = len(os.sched_getaffinity(0))
        self.asking = (time.process_time() - used) / (time.perf_counter() - began) / cores


def make_home(home: Path) -> None:
    """A world, its index and the embedded base with an adapter that changes nothing, deployed below `home`."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from evaluation.demo import MIXED
    from revelator import registry
    from revelator.artifact import digest_base, write_manifest
    from serving.deploy.deploy import deploy

    program = [sys.executable, "-c", "from revelator.cli import main; main()"]
    world, index = home / "world", home / "indexes" / "world"
    for step in (
        ["data", "build", str(MIXED), "--size", "2000", "--seed", "7", "--out", str(world)],
        ["index", "build", str(world / "passages.jsonl"), "--out", str(index)],
    ):
        subprocess.run([*program, *step], check=True, stdout=sys.stderr)
    base, adapter = TINY, home / "adapters" / "nothing"
    lora = LoraConfig(r=1, target_modules="all-linear", task_type="CAUSAL_LM")  # its product is zero until it is taught
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(str(adapter))
    AutoTokenizer.from_pretrained(base).save_pretrained(str(adapter))
    write_manifest(adapter, base_name=str(TINY), base_digest=digest_base(base), data_digest="none", run_id="")
    registry.connect(home)
    deploy(home, registry.resolve(registry.NAME, registry.register_adapter(adapter)))


class Asker:
    """A channel to the executor. Answers are read after the measurement, as far as that is possible."""

    def __init__(self, url: str, deadline_ms: int) -> None:
        self._requests: dict[str, bytes] = {}  # by question: the cores are the server's as far as can be
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(url, options=options)
        self._infer = self._channel.unary_unary(METHOD)
        self._deadline_ms = deadline_ms

    async def __aenter__(self) -> Asker:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._channel.close()

    async def ask(self, question: str, outcomes: Outcomes) -> str:
        """The outcome: of the answer, or the error's name."""
        if question not in self._requests:
            self._requests[question] = self._serialize(question)
        began = time.perf_counter()
        try:
            answer = await self._infer(self._requests[question])
        except grpc.aio.AioRpcError as error:
            took, name = (time.perf_counter() - began) * 1000, read_error_name(error.details() or "")
            if name == "Overloaded":
                outcomes.refused.append(took)
            else:
                outcomes.others[name] += 1
            return name
        took = time.perf_counter() - began
        name = read_outcome(answer)
        if name == "answered" and took * 1000 <= self._deadline_ms:
            outcomes.in_time.append(took)
        else:
            outcomes.others["late" if name == "answered" else name] += 1
        return name

    def _serialize(self, question: str) -> bytes:
        request = service_pb2.ModelInferRequest(model_name="executor")
        request.parameters["deadline_ms"].int64_param = self._deadline_ms
        for name, value in (("question", question), ("options", "")):
            request.inputs.add(name=name, datatype="BYTES", shape=[1]).contents.bytes_contents.append(value.encode())
        return request.SerializeToString()


def read_outcome(answer: bytes) -> str:
    read = service_pb2.ModelInferResponse.FromString(answer)
    texts = dict(zip((output.name for output in read.outputs), read.raw_output_contents, strict=True))
    return json.loads(texts["trace"][4:])["outcome"]  # after the length of the string


def read_error_name(details: str) -> str:
    try:
        return json.loads(details)["error"]
    except ValueError:
        return details[:60]


async def find_answerable(asker: Asker, questions: list[str]) -> list[str]:
    """Those of the questions whose answer is complete when nothing else is asked."""
    return [question for question in questions if await asker.ask(question, Outcomes()) == "answered"]


async def ask_steadily(asker: Asker, questions: Iterator[str], clients: int, seconds: float) -> Outcomes:
    outcomes, began, used = Outcomes(), time.perf_counter(), time.process_time()

    async def client() -> None:
        while time.perf_counter() - began < seconds:
            await asker.ask(next(questions), outcomes)

    await asyncio.gather(*(client() for _ in range(clients)))
    outcomes.seconds = time.perf_counter() - began
    outcomes.record_asking(began, used)
    return outcomes


async def offer(asker: Asker, questions: Iterator[str], arrivals: list[float]) -> Outcomes:
    """A question at each of the moments, in seconds from now, whatever becomes of the others."""
    outcomes, began, used = Outcomes(), time.perf_counter(), time.process_time()

    async def put(question: str) -> None:
        answered = len(outcomes.in_time)
        await asker.ask(question, outcomes)
        if len(outcomes.in_time) > answered:
            outcomes.seconds = time.perf_counter() - began

    async with asyncio.TaskGroup() as tasks:
        for arrival in arrivals:
            await asyncio.sleep(max(0.0, began + arrival - time.perf_counter()))
            tasks.create_task(put(next(questions)))
    outcomes.seconds = max(outcomes.seconds, arrivals[-1])
    outcomes.record_asking(began, used)
    return outcomes


def draw_moments(rate: float, seconds: float, chance: random.Random) -> list[float]:
    found = [chance.expovariate(rate)]
    while found[-1] < seconds:
        found.append(found[-1] + chance.expovariate(rate))
    return found


async def measure(url: str, asked: list[str], given: argparse.Namespace) -> bool:
    chance, met = random.Random(given.seed), True
    chance.shuffle(asked)
    async with Asker(url, given.deadline_ms) as asker:
        known = await find_answerable(asker, asked[:TRIED])
        questions = cycle(known)
        print(f"{len(known)} of {len(asked[:TRIED])} questions are complete when asked alone", flush=True)
        full = await ask_steadily(asker, questions, given.clients, given.seconds / 2)
        print(f"capacity {full.goodput:.2f} questions/s, n = {full.admissions}, {given.clients} at a time, ", end="")
        print(f"asking {full.asking:.1%}", flush=True)
        print(
            "| times | offered | admitted | complete in time | p50, p95 s | goodput/s | asking | of the capacity |",
            end="",
        )
        print(" refused p50, p99 ms | longest | other outcomes |\n|---|---|---|---|---|---|---|---|---|---|---|")
        for times in given.times:
            arrivals = draw_moments(times * full.goodput, given.seconds, chance)
            found = await offer(asker, questions, arrivals)
            share, kept = len(found.in_time) / found.admissions, found.goodput_of_server / full.goodput_of_server
            refused = sorted(found.refused) or [0.0, 0.0]
            p50, p95 = (quantile(found.in_time, q) for q in (0.5, 0.95))
            late = quantile(refused, 0.99) if len(refused) > 1 else refused[0]
            print(f"| {times:g} | {len(arrivals)} | {found.admissions} | {share:.1%} | {p50:.2f}, {p95:.2f} ", end="")
            print(f"| {found.goodput:.2f} | {found.asking:.1%} | {kept:.0%} ", end="")
            print(f"| {statistics.median(refused):.1f}, {late:.1f} ", end="")
            others = ", ".join(f"{count} {name}" for name, count in found.others.items())
            print(f"| {refused[-1]:.0f} | {others} |", flush=True)
            due = min(1.0, len(arrivals) / found.seconds / full.goodput)  # fewer may come than can be answered
            met &= share >= COMPLETE and kept >= GOODPUT * due and late <= REFUSED_MS
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="home folder to make, or to use again (default: a temporary one)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--deadline-ms", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--times", type=float, nargs="+", default=TIMES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--triton", default="none", help="as of `revelator serve`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = given.home or Path(temporary)
        if not (home / "world").is_dir():
            make_home(home)
        rows = map(json.loads, (home / "world" / "questions.jsonl").read_text(encoding="utf-8").splitlines())
        asked = [row["question"] for row in rows if row["split"] == "test"]
        machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"{machine}, deadline {given.deadline_ms} ms, {given.seconds:g} s each, seed {given.seed}", flush=True)
        with serving(home, "--triton", given.triton) as (running, _):
            met = asyncio.run(measure(running.grpc, asked, given))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
