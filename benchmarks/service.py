"""A service with its models in its own process and on Triton, in one run: `python benchmarks/service.py`, some minutes.

Both serve the documents of `examples/faculty` with the embedded models, from a home folder of their own, and are asked
in turn. Timed are the seconds from the command `revelator serve` to the first answer, then questions/s and milliseconds
a question of `--clients` that each ask again as soon as they are answered, through tritonclient. Who is refused, or is
answered in part, asks again after the time that the service names, and has waited from the first time on. Each client
goes on until it has its answers, so that those who are passed over count as well. `--beside NAME=HOST:PORT` measures a
service that runs already, of another version say, row by row with these. Clients and service share the machine's cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil
import tritonclient.grpc as grpc_client
from fixed.load import quantile, serving
from tritonclient.utils import InferenceServerException

from revelator.client import Client
from revelator.errors import Overloaded
from revelator.wire import read_error
from serving.retrieval import build_index

DOCUMENTS = Path(__file__).parents[1] / "examples" / "faculty" / "documents"
QUESTION, ANSWER = "What is the extension of the head of the Flume Laboratory?", b"4115"
WAYS = {"in process": "none", "on Triton": "local"}


def measure_cpu(process: psutil.Process) -> float:
    """Seconds of the cores that a process and its children have used."""
    family = [process, *process.children(recursive=True)]
    return sum(sum(member.cpu_times()[:2]) for member in family)


@dataclass(frozen=True)
class Way:
    """A service: its address and its process."""

    url: str
    process: psutil.Process


@dataclass
class Load:
    """Milliseconds until each whole answer, from the first time that its question was asked; how many requests were
    answered in part when their time was over, and how many were refused."""

    answered: list[float] = field(default_factory=list)
    late: int = 0
    refused: int = 0
    seconds: float = 0.0


def ask_steadily(url: str, clients: int, answers: int) -> Load:
    """Each client until it has so many whole answers."""
    load, began = Load(), time.perf_counter()

    def ask() -> None:
        inputs = []
        for name, value in (("question", QUESTION), ("options", "")):
            tensor = grpc_client.InferInput(name, [1], "BYTES")
            inputs.append(tensor.set_data_from_numpy(np.array([value.encode()], dtype=np.object_)))
        with grpc_client.InferenceServerClient(url) as client:
            for _ in range(answers):
                start = time.perf_counter()
                while not ask_once(client, inputs):
                    pass
                load.answered.append((time.perf_counter() - start) * 1000)

    def ask_once(client: grpc_client.InferenceServerClient, inputs: list[grpc_client.InferInput]) -> bool:
        """Whether it was answered, and whole; who is refused waits as long as the service says."""
        try:
            whole = client.infer("executor", inputs).as_numpy("answer")[0] == ANSWER
        except InferenceServerException as error:
            found = read_error((error.status() or "").removeprefix("StatusCode."), error.message())
            load.refused += 1
            time.sleep((found.retry_after_ms or 0.0) / 1000 if isinstance(found, Overloaded) else 0.0)
            return False
        load.late += not whole
        return bool(whole)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.seconds = time.perf_counter() - began
    return load


def measure(name: str, way: Way, clients: int, answers: int) -> None:
    """Prints one row."""
    used = measure_cpu(way.process)
    load = ask_steadily(way.url, clients, answers)
    used, took = measure_cpu(way.process) - used, load.answered
    row = f"{name:12}{clients:8}{len(took) / load.seconds:13.2f}{statistics.median(took):9.0f}"
    row += f"{quantile(took, 0.99):9.0f}{used / len(took):16.2f}{len(took):6}{load.late:6}"
    print(f"{row}{load.refused:9}", flush=True)


def read_beside(text: str) -> tuple[str, Way]:
    """`NAME=HOST:PORT`, of a service on this machine."""
    name, _, url = text.partition("=")
    port = int(url.rpartition(":")[2])
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr.port == port]
    return name, Way(url, psutil.Process(listening[0].pid))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--answers", type=int, default=64, help="of a row, at least one a client")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--beside", type=read_beside, action="append", default=[], metavar="NAME=HOST:PORT")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} before the run")
    columns = f"{'questions/s':>13}{'p50 ms':>9}{'p99 ms':>9}{'CPU s/question':>16}{'n':>6}{'late':>6}{'refused':>9}"
    with TemporaryDirectory() as folder, ExitStack() as running:
        index, ways = Path(folder) / "index", dict(given.beside)
        build_index([DOCUMENTS], index)
        for name in given.ways:
            (home := Path(folder) / WAYS[name]).mkdir()
            began = time.perf_counter()
            options = ("--index", str(index), "--triton", WAYS[name])
            server, process = running.enter_context(serving(home, *options))
            with Client(server.grpc) as client:
                client.ask(QUESTION)
            print(f"{name:12}first answer {time.perf_counter() - began:.1f} s after the command", flush=True)
            ways[name] = Way(server.grpc, process)
        for way in ways.values():
            with Client(way.url) as client:
                client.ask(QUESTION)
        print(f"{'way':12}{'clients':>8}{columns}")
        for clients in given.clients:
            for name, way in ways.items():
                measure(name, way, clients, max(1, given.answers // clients))


if __name__ == "__main__":
    main()
