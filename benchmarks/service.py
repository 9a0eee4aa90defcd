"""The executor as a service of its own and inside Triton, in one run: `python benchmarks/service.py`, some minutes.

Both serve the documents of `examples/faculty` with the embedded models, from a home folder of their own, one after the
other. Timed are the seconds from the command `revelator serve` to the first answer, then questions/s and milliseconds a
question of `--clients` that each ask again as soon as they are answered, through tritonclient; who is refused asks again
after the time that the server names. Clients and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import tritonclient.grpc as grpc_client
from fixed.load import quantile
from tritonclient.utils import InferenceServerException

from revelator.client import Client
from revelator.errors import Overloaded
from revelator.wire import read_error
from serving.home.running import find_running_server
from serving.retrieval import build_index

DOCUMENTS = Path(__file__).parents[1] / "examples" / "faculty" / "documents"
QUESTION, ANSWER = "What is the extension of the head of the Flume Laboratory?", b"4115"
WAYS = {"in Triton": "local", "service": "none"}
LOOK_SECONDS = 0.05


@contextmanager
def serving(home: Path, index: Path, triton: str) -> Iterator[tuple[str, psutil.Process]]:
    """`revelator serve` with the models there; its gRPC address and its process."""
    command = [sys.executable, "-m", "revelator", "serve", "--home", str(home), "--index", str(index)]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--triton", triton], stdout=log, stderr=subprocess.STDOUT)
    try:
        while (running := find_running_server(home)) is None:
            assert process.poll() is None, (home / "log").read_text()
            time.sleep(LOOK_SECONDS)
        yield running.grpc, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def measure_cpu(process: psutil.Process) -> float:
    """Seconds of the cores that a process and its children have used."""
    family = [process, *process.children(recursive=True)]
    return sum(sum(member.cpu_times()[:2]) for member in family)


def ask_steadily(url: str, clients: int, seconds: float) -> tuple[list[float], int, float]:
    """Milliseconds of each answer to `clients`, how many questions were refused, and the seconds of all together."""
    took: list[float] = []
    refused: list[float] = []
    began = time.perf_counter()

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
                    refused.append(found.retry_after_ms if isinstance(found, Overloaded) else 0.0)
                    time.sleep(refused[-1] / 1000)
                    continue
                assert answer == ANSWER, answer
                took.append((time.perf_counter() - start) * 1000)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, len(refused), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} before the run")
    print(
        f"{'way':12}{'clients':>8}{'questions/s':>13}{'p50 ms':>9}{'p99 ms':>9}{'CPU s/question':>16}{'n':>6}{'refused':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        build_index([DOCUMENTS], index)
        for way, triton in WAYS.items():
            (home := Path(folder) / triton).mkdir()
            began = time.perf_counter()
            with serving(home, index, triton) as (url, process):
                with Client(url) as client:
                    client.ask(QUESTION)
                    first = time.perf_counter() - began
                    client.ask(QUESTION)
                for clients in given.clients:
                    used = measure_cpu(process)
                    took, refused, seconds = ask_steadily(url, clients, given.seconds)
                    used = measure_cpu(process) - used
                    row = f"{way:12}{clients:8}{len(took) / seconds:13.2f}{statistics.median(took):9.0f}"
                    print(
                        f"{row}{quantile(took, 0.99):9.0f}{used / len(took):16.2f}{len(took):6}{refused:9}", flush=True
                    )
            print(f"{way:12}first answer {first:.1f} s after the command", flush=True)


if __name__ == "__main__":
    main()
