"""What the benchmarks of a service share."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from serving.home.running import RunningServer, find_running_server

METHOD = "/inference.GRPCInferenceService/ModelInfer"
LOOK_SECONDS = 0.05


def quantile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


@contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[RunningServer, psutil.Process]]:
    """`revelator serve` with these options, once it answers; and its process. Every question is answered anew."""
    (home / "serving.yaml").write_text("answer_cache: false\n", encoding="utf-8")
    command = [sys.executable, "-m", "revelator", "serve", "--home", str(home), *options]
    with (home / "serve.out").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    try:
        while (running := find_running_server(home)) is None:
            assert process.poll() is None, (home / "serve.out").read_text()
            time.sleep(LOOK_SECONDS)
        yield running, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
