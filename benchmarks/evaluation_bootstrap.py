"""How long the bootstrap takes: plain, by groups, in columns, and paired; median of 5 runs.

    python benchmarks/evaluation_bootstrap.py [--questions N] [--resamples N]

The bound is 5 s for 10,000 resamples of 10,000 questions; the exit status is 1 when it is passed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from evaluation.measures.bootstrap import bootstrap, bootstrap_columns, paired_bootstrap

BOUND = 5.0  # seconds
REPEATS = 5


def seconds(work: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    given = parser.parse_args()
    ours, theirs = np.random.default_rng(0).random((2, given.questions))
    columns = np.random.default_rng(1).random((given.questions, 20))
    ids = [f"q{number}" for number in range(given.questions)]
    cases: dict[str, Callable[[], object]] = {
        "mean": lambda: bootstrap(ours, resamples=given.resamples),
        "mean, rows grouped by question": lambda: bootstrap(ours, groups=ids, resamples=given.resamples),
        "means of 20 measures": lambda: bootstrap_columns(columns, resamples=given.resamples),
        "difference of two systems on the same questions": lambda: paired_bootstrap(
            {"em": ours - theirs}, {"em": ids}, confidence=0.975, resamples=given.resamples
        ),
    }
    table = Table("bootstrap of", "median (s)", "slowest (s)", title=f"{given.resamples:,} × {given.questions:,}")
    slowest = 0.0
    for name, work in cases.items():
        taken = seconds(work)
        slowest = max(slowest, *taken)
        table.add_row(name, f"{statistics.median(taken):.2f}", f"{max(taken):.2f}")
    Console().print(table)
    return int(slowest > BOUND)


if __name__ == "__main__":
    sys.exit(main())
