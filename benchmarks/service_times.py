"""What one question takes of a server: processor seconds by model, time, memory, and bytes of index a passage.

    python benchmarks/service_times.py --home runs/demo --questions 40 --out times.json

Questions go one after the other, so that nothing waits; processor time is the kernel's own count over the server's
process and its models', the collector's and the network's share in it. `deploy/sizing.py` takes the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
from fixed.server import processes

from revelator.client import Client
from revelator.errors import ServingError
from serving.triton.repository import Settings, recorded_parameters
from serving.triton.serve import serve_home
from serving.triton.server import read_ports

WARM_UP = 3


def questions(path: Path, count: int) -> Iterator[str]:
    with path.open(encoding="utf-8") as lines:
        for line in islice(lines, count + WARM_UP):
            yield json.loads(line)["question"]


def spent(found: dict[str, psutil.Process]) -> dict[str, float]:
    times = {name: process.cpu_times() for name, process in found.items()}
    return {name: one.user + one.system for name, one in times.items()}


def measure(home: Path, asked: list[str]) -> dict[str, object]:
    with serve_home(home, read_ports("auto"), Settings()) as (server, running), Client(running.grpc, 120) as client:
        found = processes(server.pid)
        for question in asked[:WARM_UP]:
            ask(client, question)
        before, began = spent(found), time.perf_counter()
        outcomes = [ask(client, question) for question in asked[WARM_UP:]]
        wall = time.perf_counter() - began
        after = spent(found)
        memory = {name: process.memory_full_info() for name, process in found.items()}
    traces = [trace for trace in outcomes if trace]
    n = len(outcomes)
    index = Path(recorded_parameters(home, "retriever")["index"])
    manifest = json.loads((index / "manifest.json").read_text())
    return {
        "questions": n,
        "answered": len(traces),
        "core_seconds": {name: round((after[name] - before[name]) / n, 5) for name in found},
        "seconds_a_question": {
            "mean": round(wall / n, 4),
            "median": round(statistics.median(trace.wall_ms for trace in traces) / 1000, 4),
        },
        "leaves_a_question": sum(node.kind == "atomic" for t in traces for node in t.nodes) / len(traces),
        "searches_a_question": sum(trace.usage.retrievals for trace in traces) / len(traces),
        "private_bytes": {name: one.uss for name, one in memory.items()},
        "index": {"passages": manifest["count"], "kind": manifest["settings"]["kind"], "bytes": folder_bytes(index)},
        "cores": psutil.cpu_count(),
    }


def ask(client: Client, question: str):
    try:
        return client.ask(question).trace
    except ServingError:
        return None


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, default=Path("runs/demo"), help="a home folder with a deployed version")
    parser.add_argument("--file", type=Path, help="JSON lines with `question` (default: the world's below --home)")
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    file = options.file or options.home / "world" / "questions.jsonl"
    times = json.dumps(measure(options.home, list(questions(file, options.questions))), indent=1)
    print(times)
    if options.out:
        options.out.write_text(times + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
