"""What the typed client adds to a call over raw tritonclient, on a real Triton server.

    python benchmarks/client.py [--calls 400]

The server holds a stand-in for the model `executor`, which answers each question at once with the same trace: a plan
of two leaves with ten documents each, as a question over an index leaves it. Four callers take turns, call by call, so
that what the machine does meanwhile meets all alike: tritonclient as its own examples use it (inputs made, `infer`,
both outputs decoded, the trace left as text) and `revelator.client`, each blocking and awaited. `added` is the median
of the differences within a turn, with the 95 % interval of the bootstrap over turns; `processor` is the processor time
of a call in this process, which other processes lengthen less.
"""

from __future__ import annotations

import asyncio
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from rich.console import Console
from rich.table import Table

from revelator.client import AsyncClient, Client
from serving.triton import control
from serving.triton.access import read_control_token
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer, read_ports

CODE = Path(__file__).parent / "fixed" / "models" / "answered.py"
CONFIG = Path(__file__).parents[1] / "model_repo" / "executor" / "config.pbtxt"
QUESTION = "Who founded the company that distributed UHF?"


def inputs() -> list[grpc_client.InferInput]:
    made = []
    for name, value in (("question", QUESTION), ("options", "")):
        tensor = grpc_client.InferInput(name, [1], "BYTES")
        made.append(tensor.set_data_from_numpy(np.array([value.encode()], dtype=np.object_)))
    return made


def read(result: grpc_client.InferResult) -> tuple[str, str]:
    return result.as_numpy("answer")[0].decode(), result.as_numpy("trace")[0].decode()


@contextmanager
def serving() -> Iterator[str]:
    """The gRPC address of a server with the stand-in."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (version := work / "models" / "executor" / "1").mkdir(parents=True)
        (version / "model.py").write_bytes(CODE.read_bytes())
        (version.parent / "config.pbtxt").write_bytes(CONFIG.read_bytes())
        server = TritonServer(
            find_installation(work),
            work / "models",
            read_ports("auto"),
            work / "triton.log",
            token=read_control_token(work),
        )
        with server:
            control.load(work, server.url, "executor", 1)
            yield server.url


async def measure(url: str, calls: int) -> dict[str, list[tuple[float, float]]]:
    """Wall and processor seconds of each call, by caller."""
    blocking, awaited = grpc_client.InferenceServerClient(url), aio_client.InferenceServerClient(url)
    with Client(url) as client:
        async with AsyncClient(url) as asynchronous:

            async def raw() -> object:
                return read(blocking.infer("executor", inputs()))

            async def raw_awaited() -> object:
                return read(await awaited.infer("executor", inputs()))

            async def ours() -> object:
                return client.ask(QUESTION)

            callers: dict[str, Callable[[], Awaitable[object]]] = {
                "tritonclient": raw,
                "Client": ours,
                "tritonclient, awaited": raw_awaited,
                "AsyncClient": lambda: asynchronous.ask(QUESTION),
            }
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in callers}
            order = list(callers)
            for turn in range(calls + 20):
                random.shuffle(order)
                for name in order:
                    began, worked = time.perf_counter(), time.process_time()
                    await callers[name]()
                    if turn >= 20:  # the first ones warm up
                        taken[name].append((time.perf_counter() - began, time.process_time() - worked))
    blocking.close()
    await awaited.close()
    return taken


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by 2,000 resamples."""
    drawn = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2_000))
    return drawn[50], drawn[1_949]


@click.command(help=__doc__)
@click.option("--calls", default=400, show_default=True, type=click.IntRange(10))
def main(calls: int) -> None:
    random.seed(1)
    with serving() as url:
        taken = asyncio.run(measure(url, calls))
    table = Table("", "ms a call, median", "p99", "added, ms", "processor, ms", title=f"{calls} calls each")
    for name, raw in (
        ("tritonclient", None),
        ("Client", "tritonclient"),
        ("tritonclient, awaited", None),
        ("AsyncClient", "tritonclient, awaited"),
    ):
        wall = [1000 * seconds for seconds, _ in taken[name]]
        worked = statistics.mean(1000 * seconds for _, seconds in taken[name])
        added = ""
        if raw:
            differences = [1000 * (one - other) for (one, _), (other, _) in zip(taken[name], taken[raw], strict=True)]
            low, high = interval(differences)
            added = f"{statistics.median(differences):.2f} [{low:.2f}, {high:.2f}]"
        p99 = sorted(wall)[int(0.99 * len(wall))]
        table.add_row(name, f"{statistics.median(wall):.2f}", f"{p99:.2f}", added, f"{worked:.2f}")
    Console(width=100).print(table, f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
