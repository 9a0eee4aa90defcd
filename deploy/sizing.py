"""From measured service times to replicas, memory, disks, shards and cost. A calculation, not a measurement.

    python benchmarks/service_times.py --home runs/demo --out times.json
    python deploy/sizing.py times.json

It needs Python alone. What it assumes stands in `Assumptions`, each to be changed by an option; docs/evaluation.md says
how far each is to be trusted. `revelator eval cost` answers another question: what a strategy makes of given servers,
from its counted calls.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path

RATES = (1, 100, 10_000)
GB = 1e9


@dataclass(frozen=True)
class Assumptions:
    """`busy` is the share of a replica's `cores` that a rate may take, the rest is for peaks and for queues to stay
    short; `least` replicas are kept for one of them to fail. Prices are in dollars, of a month of 730 hours."""

    passages: int = 21_000_000
    cores: int = 16
    busy: float = 0.6
    least: int = 2
    shard_gb: float = 32.0
    core_month: float = 25.0
    gb_month: float = 3.0
    disk_gb_month: float = 0.1


@dataclass(frozen=True)
class Size:
    rate: int
    core_seconds: float
    replicas: int
    memory_gb: float
    disk_gb: float
    cost: float


def core_seconds(times: dict, passages: int) -> float:
    """Of one question; a search by words reads the postings of its terms, whose number grows as the corpus does."""
    spent = dict(times["core_seconds"])
    searching = spent.pop("retriever") * passages / times["index"]["passages"]
    return sum(spent.values()) + searching


def index_gb(times: dict, passages: int) -> float:
    return times["index"]["bytes"] * passages / times["index"]["passages"] / GB


def size(times: dict, rate: int, a: Assumptions, passages: int) -> Size:
    """Each replica holds the models' private memory once for as many cores as were measured, and the whole index once
    in its page cache."""
    needed = core_seconds(times, passages)
    replicas = max(a.least, math.ceil(rate * needed / (a.cores * a.busy)))
    index = index_gb(times, passages)
    copies = math.ceil(a.cores / times["cores"])
    memory = copies * sum(times["private_bytes"].values()) / GB + index
    monthly = replicas * (a.cores * a.core_month + memory * a.gb_month + index * a.disk_gb_month)
    return Size(rate, needed, replicas, replicas * memory, replicas * index, monthly)


def report(times: dict, a: Assumptions) -> str:
    lines = []
    for passages in (times["index"]["passages"], a.passages):
        index = index_gb(times, passages)
        shards = math.ceil(index / a.shard_gb)
        lines += [
            f"{passages:,} passages: index {index:.1f} GB, shards of at most {a.shard_gb:g} GB: {shards},"
            f" {core_seconds(times, passages):.3f} core seconds a question",
            "",
            "| questions/s | replicas | cores | memory GB | disk GB | $ a month | $ a million questions |",
            "|---|---|---|---|---|---|---|",
        ]
        for one in (size(times, rate, a, passages) for rate in RATES):
            million = one.cost / (one.rate * 730 * 3600) * 1e6
            cells = one.rate, one.replicas, one.replicas * a.cores, one.memory_gb, one.disk_gb, one.cost, million
            lines.append("| " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", type=Path, help="what benchmarks/service_times.py wrote")
    for field in fields(Assumptions):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    options = vars(parser.parse_args())
    path = options.pop("times")
    for name, value in options.items():
        if not value >= 0 or (value == 0 and not name.endswith("_month")):  # a price may be nothing
            parser.error(f"{name.replace('_', '-')}: a positive number is needed")
    try:
        print(report(json.loads(path.read_text(encoding="utf-8")), Assumptions(**options)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{path} is not what benchmarks/service_times.py writes: {error!r}")


if __name__ == "__main__":
    main()
