"""Logical search against one plain dense search of the same vectors: wall and CPU time, and their ratios.

    python benchmarks/logic.py [--vectors N] [--rounds N]

Random unit vectors of 384 dimensions in a memory-mapped file (1,000,000 take 1.5 GB). All ways take the ten best of
all documents, on one thread: plain compares one vector, the others compose three terms. Rounds alternate between the
ways; figures are medians, and a ratio is the median of the rounds' ratios. CPU time counts where others use the
machine too. FAISS's own exhaustive search stands beside. No text is embedded here: the terms of a query travel in one
batch, as one query does.
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

from revelator.language.logic import parse
from serving.retrieval.logical import DEFAULT, best, compose
from serving.retrieval.logical_search import products
from serving.retrieval.pruned import pruned

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
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        matrix = write_vectors(Path(name) / "vectors.npy", arguments.vectors)
        terms = matrix[:3] + 0.1 * matrix[3:6]
        terms = np.ascontiguousarray(terms / np.linalg.norm(terms, axis=1, keepdims=True))

        def plain() -> np.ndarray:
            return best(products(matrix, terms[:1])[0], 10)

        def logical(text: str) -> np.ndarray:
            return search(matrix, dict(zip("abc", terms, strict=True)), text)

        def flat() -> np.ndarray:
            return faiss.knn(terms[:1], np.asarray(matrix), 10, metric=faiss.METRIC_INNER_PRODUCT)[1][0]

        ways: dict[str, Callable[[], np.ndarray]] = {"plain": plain, "FAISS flat": flat}
        ways |= {text: partial(logical, text) for text in QUERIES}
        assert plain().tolist() == flat().tolist()
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way, run in ways.items():
                times[way].append(clocked(run))
    print(f"{arguments.vectors:,} x {DIMENSIONS}, {os.cpu_count()} cores; over: times plain\n")
    print(f"{'':26}{'wall ms':>10}{'CPU ms':>10}{'wall over':>11}{'CPU over':>11}")
    base = np.array(times["plain"])
    for way, taken in times.items():
        wall, cpu = 1000 * np.median(taken, axis=0)
        over = np.median(np.array(taken) / base, axis=0)
        print(f"{way:26}{wall:10.0f}{cpu:10.0f}{over[0]:11.2f}{over[1]:11.2f}")


def search(matrix: np.ndarray, vectors: dict[str, np.ndarray], text: str) -> np.ndarray:
    """The ten best of all, as `search_logical` finds them."""
    query = parse(text)

    def cosines(names: list[str], places: np.ndarray | None) -> np.ndarray:
        return products(matrix, np.stack([vectors[name] for name in names]), places)

    found = pruned(query, 10, len(matrix), cosines, lambda _, values: np.clip(values, 0, 1), DEFAULT)
    if found is not None:
        return found[1]
    rows = np.clip(products(matrix, np.stack(list(vectors.values()))), 0, 1)
    return best(compose(query, dict(zip(vectors, rows, strict=True))), 10)


def clocked(run: Callable[[], np.ndarray]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
