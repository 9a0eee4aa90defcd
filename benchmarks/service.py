"""A service with its models in its own process and on Triton, in one run: `python benchmarks/service.py`, some minutes.

Both serve the documents of `examples/faculty` with the embedded models, from a home folder of their own, one after the
other. Timed are the seconds from the command `revelator serve` to the first answer, then questions/s and milliseconds a
question of `--clients` that each ask again as soon as they are answered, through tritonclient. Who is refused asks
again after the time that the service names. Clients and service share the machine's cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass
class Load:
    """Milliseconds of each whole answer; how many questions were answered in part when their time was over, and how
    many were refused."""

    answered: list[float] = field(default_factory=list)
    late: int = 0
    refused: int = 0
    seconds: float = 0.0


def ask_steadily(url: str, clients: int, seconds: float) -> Load:
    load, began = Load(), time.perf_counter()

    def ask() -> None:
        inputs = []
        for name, value in (("question", QUESTION), ("options", "")):
            tensor = grpc_client.InferInput(name, [1], "BYTES")
            inputs.append(tensor.set_data_from_numpy(np.array([value.encode()], dtype=np.object_)))
        with grpc_client.InferenceServerClient(url) as client:
            while time.perf_counter() - began < seconds:
                start = time.perf_counter()
                try:
                    answer = client.infer("executor", inputs).as_numpy("answer")[0]
                except InferenceServerException as error:
                    found = read_error((error.status() or "").removeprefix("StatusCode."), error.message())
                    load.refused += 1
                    time.sleep((found.retry_after_ms or 0.0) / 1000 if isinstance(found, Overloaded) else 0.0)
                    continue
                if answer == ANSWER:
                    load.answered.append((time.perf_counter() - start) * 1000)
                else:
                    load.late += 1

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.seconds = time.perf_counter() - began
    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} before the run")
    columns = f"{'questions/s':>13}{'p50 ms':>9}{'p99 ms':>9}{'CPU s/question':>16}{'n':>6}{'late':>6}{'refused':>9}"
    print(f"{'way':12}{'clients':>8}{columns}")
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        build_index([DOCUMENTS], index)
        for way, triton in WAYS.items():
            (home := Path(folder) / triton).mkdir()
            began = time.perf_counter()
            with serving(home, "--index", str(index), "--triton", triton) as (running, process):
                with Client(running.grpc) as client:
                    client.ask(QUESTION)
                    first = time.perf_counter() - began
                    client.ask(QUESTION)
                for clients in given.clients:
                    used = measure_cpu(process)
                    load = ask_steadily(running.grpc, clients, given.seconds)
                    used, took = measure_cpu(process) - used, load.answered
                    row = f"{way:12}{clients:8}{len(took) / load.seconds:13.2f}{statistics.median(took):9.0f}"
                    row += f"{quantile(took, 0.99):9.0f}{used / len(took):16.2f}{len(took):6}{load.late:6}"
                    print(f"{row}{load.refused:9}", flush=True)
            print(f"{way:12}first answer {first:.1f} s after the command", flush=True)


if __name__ == "__main__":
    main()
