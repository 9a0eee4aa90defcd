"""Building an instruction set of a million records: records a second, peak memory; how both grow with its size.

    python benchmarks/data.py [--records 1000000] [--world DIR] [--cores 1 2] [--shares 0.25 0.5 1]

A synthetic world is made first (kept in `--world`, if that is named), by a process of its own that is not counted. Then
the same records are built by one process on one core and by two workers on two (`--cores`), at a quarter, a half and
all of the questions (`--shares`). "core-s" is what the processes used of the cores: where it is less than cores × s,
others had the rest, and "records a core-s" is the figure to compare. Memory is that of the building process and its
workers together, looked at ten times a second: Linux `RssAnon`, what they hold for themselves, beyond shared and cached
pages.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil

RECORDS_A_QUESTION = 22.5  # of the configuration below, a little less than it gives


def configured(world: Path, questions: int) -> dict[str, Any]:
    """Every record that a question can give: all its steps as questions of their own, all pairs with passages."""
    source = {"format": "world", "path": str(world), "sub_questions": 8, "limit": questions}
    return {"name": "benchmark", "sources": [source], "tasks": {"relevance": {"per_question": 8}}}


def private_bytes(process: psutil.Process) -> int:
    """What a process holds for itself; 0 once it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def measure(world: Path, questions: int, cores: int) -> dict[str, float]:
    from data_gen.build import build
    from data_gen.config import SetConfig
    from data_gen.engines import local

    process = psutil.Process()
    process.cpu_affinity(list(range(cores)))
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, sum(map(private_bytes, [process, *process.children(recursive=True)])))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, before = time.perf_counter(), os.times()
    with tempfile.TemporaryDirectory() as folder:
        config = SetConfig.model_validate(configured(world, questions))
        manifest = build(config, Path(folder) / "set", engine=local(cores))
    seconds, after = time.perf_counter() - start, os.times()
    done.set()
    watcher.join()
    used = sum(after[:4]) - sum(before[:4])  # own and of the workers, which have ended
    return {"records": sum(manifest["records"].values()), "seconds": seconds, "core-seconds": used, "peak": peak}


def apart(world: Path, questions: int, cores: int) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, world, questions, cores).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--world", type=Path, help="a world to read; made there if it is absent")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    options = parser.parse_args()
    questions = round(options.records / RECORDS_A_QUESTION)
    print(f"load at the start: {os.getloadavg()[0]:.1f}")
    print("cores  questions    records     s  records/s  core-s  records a core-s  peak MiB")
    with tempfile.TemporaryDirectory() as folder:
        world = options.world or Path(folder) / "world"
        if not world.exists():
            command = [sys.executable, "-c", "from revelator.cli import main; main()", "data", "world"]
            subprocess.run([*command, "--size", str(questions), "--out", str(world)], check=True)
        made = json.loads((world / "manifest.json").read_text())["size"]
        for cores in options.cores:
            for share in options.shares:
                asked = round(min(questions, made) * share)
                found = apart(world, asked, cores)
                records, seconds, used = found["records"], found["seconds"], found["core-seconds"]
                print(
                    f"{cores:5} {asked:10,} {records:10,.0f} {seconds:5,.0f} {records / seconds:10,.0f} {used:7,.0f}"
                    f" {records / used:17,.0f} {found['peak'] / 2**20:9,.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
