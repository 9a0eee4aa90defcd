"""The reader on a CPU: passages of 200 tokens a question, on ONNX Runtime as served and in torch as trained.

    python benchmarks/reading.py [READER] [--threads 2] [--repeats 40]

Times are medians, in milliseconds a question, taken in turns in one process; "questions" are read in one call. The last
line reads a passage of a megabyte, of which `revelator.reading.WINDOWS` windows are read.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from revelator.artifact import EMBEDDED_READER
from revelator.minilm import fetch_minilm
from revelator.reading import Reader
from serving.models.reader import load_reader
from training.reader import load_model, load_trained, make_forward

SENTENCE = "Port Velm was founded in 1921 by Ama Oyelaran, who ruled the town until Rosa Quispe came to it. "
TOKENS = 200  # of a passage
CASES = ((1, 1), (5, 1), (5, 8))  # passages a question, questions a call


def make_passage(reader: Reader, tokens: int) -> str:
    each = len(reader.tokenizer.encode(SENTENCE)[0])
    return SENTENCE * (tokens // each)


def measure(calls: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The median of each call in milliseconds; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 2):
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            if turn > 1:
                taken.append(1000 * (time.perf_counter() - began))
    return [statistics.median(taken) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reader", nargs="?", type=Path, default=EMBEDDED_READER)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=40)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    served = load_reader(asked.reader, threads=asked.threads)
    model = load_model(fetch_minilm())
    load_trained(model, asked.reader)
    trained = Reader(served.tokenizer, make_forward(model), served.calibration)
    passage = make_passage(served, TOKENS)
    table = Table("passages", "questions", "served", "torch", "torch / served", title="ms a question")
    for passages, questions in CASES:
        rows = [("Who founded Port Velm?", [("Velm", passage)] * passages)] * questions
        taken = measure([partial(reader.read_all, rows) for reader in (served, trained)], asked.repeats)
        ours, theirs = (each / questions for each in taken)
        table.add_row(str(passages), str(questions), f"{ours:.0f}", f"{theirs:.0f}", f"{theirs / ours:.2f}")
    console = Console()
    console.print(table)
    large = SENTENCE * (1_000_000 // len(SENTENCE))
    [alone] = measure([partial(served.read, "Who founded Port Velm?", [("Velm", large)])], 3)
    console.print(f"a passage of a megabyte: {alone:.0f} ms")


if __name__ == "__main__":
    main()
