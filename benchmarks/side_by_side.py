"""Questions a second of one, two and three executors behind HAProxy, over models that sleep.

    python benchmarks/side_by_side.py [--seconds 30] [--latency 400] [--clients 8] [--repeats 1]

Each executor is a process, `revelator serve --triton grpc://…`, all over one home folder. HAProxy (Debian's package)
runs by deploy/haproxy.cfg. The models answer every call after `--latency` milliseconds, so that processor time is no
limit: a server of this benchmark speaks Triton's protocol for them. A question is one search in an index, one judgement
of ten documents and one reading. `--clients` for each executor ask again as soon as they are answered, through HAProxy.
They are more than the two that an executor works on at a time (`at_once`), so its queue is never empty.

`of linear` is the rate over the rate of one executor times their number. `cores` are those that the executors used.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
import psutil
from fixed.load import quantile
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from revelator.client import AsyncClient
from revelator.tasks import TASKS
from serving.deploy.deploy import release_embedded_base
from serving.models.releases import REVELATOR
from serving.protocols import Completion, Reading
from serving.retrieval import build_index
from serving.service.addresses import LOOPBACK
from serving.service.grpc_front import make_columns, read_config
from serving.service.tensors import make_strings, read_inputs, write_outputs
from tests.balanced import COUNT, ExecutorProcess, balancing, draw_ports, running_executors

HARBOURS = 50
AT_ONCE = 2  # questions that an executor works on
QUESTION, ANSWER = "Who founded Harbour 7?", "Founder7"
WARM_SECONDS = 4.0  # until HAProxy sends questions to an executor that has come, and each has connections


class SleepingModels(GRPCInferenceServiceServicer):
    """What Triton answers of the models `revelator` and `generator`, of which each call takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ServerLiveResponse(live=True)

    def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ModelReadyResponse(ready=True)

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.RepositoryModelLoadResponse()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        time.sleep(self._seconds)
        inputs = read_inputs(request, read_config(request.model_name))
        outputs = judge(inputs["task"]) if request.model_name == REVELATOR else read(inputs["request"])
        response = pb.ModelInferResponse(model_name=request.model_name, model_version=request.model_version)
        write_outputs(response, outputs, list(outputs))
        return response


def judge(tasks: list[str]) -> dict[str, np.ndarray]:
    """Every document is relevant."""
    likely = {label: 0.9 if label == "yes" else 0.1 for label in TASKS["relevance"].labels or ()}
    return make_columns([Completion("yes", likely) for _ in tasks])


def read(requests: list[str]) -> dict[str, np.ndarray]:
    """The passage whose title the question names says the answer: its last word."""
    readings = []
    for request in map(json.loads, requests):
        found = next(p for p in request["passages"] if p["title"] in request["question"])
        answer = found["text"].removesuffix(".").split()[-1]
        readings.append(Reading(found["text"], (answer,), document=found["id"], probability=0.9).to_json())
    return {"reading": make_strings(*readings).reshape(-1, 1)}


@contextmanager
def serving_models(seconds: float, calls: int) -> Iterator[str]:
    """The address of a server of `SleepingModels`, which takes so many calls at a time."""
    server = grpc.server(ThreadPoolExecutor(calls))
    add_GRPCInferenceServiceServicer_to_server(SleepingModels(seconds), server)
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    server.start()
    try:
        yield f"{LOOPBACK}:{port}"
    finally:
        server.stop(None).wait()


def make_home(home: Path) -> Path:
    """Releases the embedded base, which is never asked, and returns an index of one-sentence passages."""
    release_embedded_base(home)
    texts = [(f"Harbour {n}", f"Harbour {n} was founded by Founder{n}.") for n in range(HARBOURS)]
    rows = [{"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(texts)]
    (home / "passages.jsonl").write_text("\n".join(map(json.dumps, rows)))
    build_index([home / "passages.jsonl"], home / "index")
    return home / "index"


async def ask_steadily(url: str, clients: int, seconds: float) -> list[float]:
    """The seconds of each question that was answered between the end of the warm-up and `seconds` later."""
    took: list[float] = []
    begins = time.monotonic() + WARM_SECONDS
    ends = begins + seconds

    async def ask() -> None:
        async with AsyncClient(url, timeout=60) as client:
            while time.monotonic() < ends:
                start = time.monotonic()
                answer = await client.ask(QUESTION, strategy="single")
                assert answer.answers == (ANSWER,), answer
                if begins <= time.monotonic() < ends:
                    took.append(time.monotonic() - start)

    async with asyncio.TaskGroup() as asking:
        for _ in range(clients):
            asking.create_task(ask())
    return took


def measure_cpu(executors: list[ExecutorProcess]) -> float:
    """Seconds of the cores that they have used."""
    return sum(sum(psutil.Process(each.process.pid).cpu_times()[:2]) for each in executors)


@click.command(help=__doc__)
@click.option("--seconds", default=30.0, show_default=True, help="Of each row.")
@click.option("--latency", default=400.0, show_default=True, help="Milliseconds of a call of a model.")
@click.option("--clients", default=8, show_default=True, help="For each executor.")
@click.option("--repeats", default=1, show_default=True, help="Rounds of 1, 2 and 3 executors.")
def main(seconds: float, latency: float, clients: int, repeats: int) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {latency:g} ms a call")
    print(f"{'executors':>9}{'questions/s':>13}{'of linear':>11}{'p50 ms':>9}{'p99 ms':>9}{'cores':>7}{'n':>6}")
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder, serving_models(latency / 1000, 4 * COUNT * clients) as models:
            home, alone = Path(folder), 0.0
            settings = {"index": str(make_home(home)), "triton": f"grpc://{models}", "answer_cache": False}
            settings["at_once"] = AT_ONCE
            (home / "serving.yaml").write_text(json.dumps(settings))
            ports = draw_ports(COUNT)
            executors = [ExecutorProcess(number, home, own) for number, own in enumerate(ports, start=1)]
            with balancing(executors, home / "haproxy.txt") as balancer:
                for count in range(1, COUNT + 1):
                    with running_executors(executors[:count]):
                        began, used = time.monotonic(), measure_cpu(executors[:count])
                        took = asyncio.run(ask_steadily(f"{LOOPBACK}:{balancer.grpc}", count * clients, seconds))
                        used = (measure_cpu(executors[:count]) - used) / (time.monotonic() - began)
                    rate = len(took) / seconds
                    alone = alone or rate
                    took_ms = [1000 * each for each in took]
                    row = f"{count:9}{rate:13.2f}{rate / alone / count:11.3f}{statistics.median(took_ms):9.0f}"
                    print(f"{row}{quantile(took_ms, 0.99):9.0f}{used:7.2f}{len(took):6}", flush=True)


if __name__ == "__main__":
    main()
