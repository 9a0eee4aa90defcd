"""Logical search against one plain dense search of the same vectors: wall and CPU time, and their ratios.

    python benchmarks/logic.py [--vectors N] [--rounds N] [--threads N]

Random unit vectors of 384 dimensions in a memory-mapped file (1,000,000 take 1.5 GB). All ways take the ten best of
all documents: plain is the dense search of a flat index for one vector, the others compose three terms. Rounds
alternate between the ways; figures are medians, and a ratio is the median of the rounds' ratios. CPU time counts where
others use the machine too. FAISS's own exhaustive search stands beside, also for several vectors at once. No text is
embedded here: the terms of a query travel in one batch, as one query does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np

from revelator.plans.logic import parse
from serving.retrieval.bounded import search_bounded
from serving.retrieval.logical import DEFAULT, best, compose
from serving.retrieval.products import nearest, products

DIMENSIONS = 384
QUERIES = ('"a" AND ("b" OR NOT "c")', '"a" AND "b" AND "c"', '"a" AND NOT "b" OR "c"', '"a" OR "b" OR "c"')


def write_vectors(path: Path, count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, DIMENSIONS))
    for start in range(0, count, 100_000):
        block = rng.standard_normal((min(100_000, count - start), DIMENSIONS), dtype=np.float32)
        matrix[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    matrix.flush()
    return np.load(path, mmap_mode="r")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        matrix = write_vectors(Path(name) / "vectors.npy", arguments.vectors)
        terms = matrix[:3] + 0.1 * matrix[3:6]
        terms = np.ascontiguousarray(terms / np.linalg.norm(terms, axis=1, keepdims=True))

        def together(vectors: np.ndarray) -> np.ndarray:
            return nearest(matrix, vectors, 10)[1]

        def plain() -> np.ndarray:
            return together(terms[:1])[0]

        def logical(text: str) -> np.ndarray:
            vectors = dict(zip("abc", terms, strict=True))
            return search_bounded(parse(text), 10, matrix, vectors, lambda _, row: np.clip(row, 0, 1), DEFAULT)[1]

        def composed(text: str) -> np.ndarray:
            rows = np.clip(products(matrix, terms), 0, 1)
            return best(compose(parse(text), dict(zip("abc", rows, strict=True))), 10)

        def exhaustive(vectors: np.ndarray) -> np.ndarray:
            return faiss.knn(vectors, np.asarray(matrix), 10, metric=faiss.METRIC_INNER_PRODUCT)[1]

        def flat() -> np.ndarray:
            return exhaustive(terms[:1])[0]

        ways: dict[str, Callable[[], np.ndarray]] = {"plain": plain, "FAISS flat": flat}
        ways |= {text: partial(logical, text) for text in QUERIES}
        assert plain().tolist() == flat().tolist()
        assert all(logical(text).tolist() == composed(text).tolist() for text in QUERIES)
        print(
            f"{arguments.vectors:,} x {DIMENSIONS}, {arguments.threads} threads of {os.cpu_count()}; over: times plain"
        )
        table(ways, "plain", arguments.rounds)
        for count in (2, 4, 8, 16):
            asked = np.ascontiguousarray(matrix[:count])
            both: dict[str, Callable[[], np.ndarray]] = {
                f"plain, {count} vectors": partial(together, asked),
                f"FAISS flat, {count} vectors": partial(exhaustive, asked),
            }
            table(both, f"plain, {count} vectors", max(1, arguments.rounds // 3))


def table(ways: dict[str, Callable[[], np.ndarray]], plain: str, rounds: int) -> None:
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            times[way].append(clocked(run))
    print(f"\n{'':26}{'wall ms':>10}{'CPU ms':>10}{'wall over':>11}{'CPU over':>11}")
    for way, taken in times.items():
        wall, cpu = 1000 * np.median(taken, axis=0)
        over = np.median(np.array(taken) / np.array(times[plain]), axis=0)
        print(f"{way:26}{wall:10.0f}{cpu:10.0f}{over[0]:11.2f}{over[1]:11.2f}")


def clocked(run: Callable[[], np.ndarray]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
