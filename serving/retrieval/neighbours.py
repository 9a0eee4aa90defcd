"""An approximate index of vectors by FAISS: it finds which passages are near without a comparison with all of them; how
near they are is computed exactly.

Which kind there is, a factory string says (Douze et al. 2024, section 5): `HNSW32` is a graph of neighbours (Malkov and
Yashunin 2018), `IVF4096,PQ48` lists by cluster with codes of 48 bytes. Below `EXACT_BELOW` passages the comparison with
all takes milliseconds, so there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from revelator.errors import ConfigError

FILE = "vectors.faiss"
FLAT = "Flat"
FAULTS = (RuntimeError, MemoryError)
LONGEST = 64  # characters of a factory string
EXACT_BELOW, GRAPH_BELOW = 100_000, 2_000_000  # passages: a graph needs 270 bytes a passage beside the vector
BLOCK = 20_000  # vectors added at a time
TRAINED = 64  # vectors that a centre, of a list or a code, is learned from
CODES = 256  # of a part of a vector
OTHERS = "take `HNSW32`, fewer lists, or leave --faiss out"
CANDIDATES = 4  # for each passage that is wanted, so many are compared exactly
EFFORT = 128  # candidates that are kept while a graph is built or searched
PROBED = 1 / 16  # of the lists that a search reads, `LEAST_PROBED` at least
LEAST_PROBED = 8
SAMPLED, DEPTH = 200, 10  # queries, and passages of each, by which recall is measured


def choose_factory(count: int, dimensions: int) -> str:
    """The factory string for so many vectors."""
    if count < EXACT_BELOW:
        return FLAT
    if count < GRAPH_BELOW:
        return "HNSW32"
    lists = 2 ** round(math.log2(4 * math.sqrt(count)))
    return f"IVF{lists},SQ8" if dimensions % 8 else f"IVF{lists},PQ{dimensions // 8}"


def check_factory(factory: str, dimensions: int) -> None:
    """Raises ConfigError for a string of which FAISS makes no index of these vectors."""
    hint = f"`{FLAT}`, `HNSW32`, `IVF4096,PQ{max(1, dimensions // 8)}`, or leave --faiss out"
    if len(factory) > LONGEST:  # FAISS follows each part into the next one, down to the end of the stack
        raise ConfigError(f"a factory string has at most {LONGEST} characters", where="--faiss", hint=hint)
    try:
        _open_factory(factory, dimensions)
    except FAULTS as error:
        message = f"FAISS makes no index of {factory!r}: {explain_fault(error)}"
        raise ConfigError(message, where="--faiss", hint=hint) from error


def explain_fault(error: Exception) -> str:
    """What FAISS says of a fault, without the place in its source."""
    return str(error).strip().splitlines()[-1].rpartition(": ")[2] or type(error).__name__


def _open_factory(factory: str, dimensions: int) -> Any:
    """By distance: of unit vectors the nearest are those of the highest cosine, and a graph by inner products has dead
    ends."""
    index = faiss.index_factory(dimensions, factory, faiss.METRIC_L2)
    inner = faiss.downcast_index(index)
    if isinstance(inner, faiss.IndexHNSW):
        inner.hnsw.efConstruction = EFFORT
    if hasattr(inner, "do_polysemous_training"):
        inner.do_polysemous_training = False  # minutes, for a way to search that is not used
    return index


def write(folder: Path, matrix: np.ndarray, factory: str, report: Callable[[int, int], object]) -> None:
    """Builds the index of the matrix's rows into the folder; `report` is told how many of how many are in it. Raises
    ConfigError where there are too few vectors to train it, or where it takes none."""
    index = _open_factory(factory, matrix.shape[1])
    if not index.is_trained:
        lists = faiss.extract_index_ivf(index).nlist if "IVF" in factory else CODES
        step = max(1, len(matrix) // (TRAINED * max(lists, CODES)))
        try:
            index.train(np.ascontiguousarray(matrix[::step]))
        except FAULTS as error:
            message = f"{len(matrix):,} vectors are too few to train {factory!r}"
            raise ConfigError(message, where="--faiss", hint=OTHERS) from error
    try:
        for start in range(0, len(matrix), BLOCK):
            index.add(np.ascontiguousarray(matrix[start : start + BLOCK]))
            report(min(start + BLOCK, len(matrix)), len(matrix))
    except FAULTS as error:
        message = f"{factory!r} does not take {len(matrix):,} vectors: {explain_fault(error)}"
        raise ConfigError(message, where="--faiss", hint=OTHERS) from error
    faiss.write_index(index, str(folder / FILE))


class Neighbours:
    """The approximate index of a folder, memory-mapped, and the vectors. Safe to share between threads."""

    def __init__(self, folder: Path, matrix: np.ndarray) -> None:
        self._matrix = matrix
        try:
            self._index: Any = faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP_IFC)
        except FAULTS as error:
            raise ValueError(f"{FILE}: {explain_fault(error)}") from error
        if self._index.ntotal != len(matrix):
            raise ValueError(f"{FILE} has {self._index.ntotal} vectors, and there are {len(matrix)}")
        self._effort = self._make_effort()

    def _make_effort(self, among: np.ndarray | None = None) -> Any:
        """The parameters of a search, `among` the rows of a mask; None for a kind of index that takes none."""
        parts: Any = faiss  # its stubs know no parameters of a search
        inner = faiss.downcast_index(self._index)
        only = {} if among is None else {"sel": parts.IDSelectorBitmap(np.packbits(among, bitorder="little"))}
        if isinstance(inner, faiss.IndexHNSW):
            return parts.SearchParametersHNSW(efSearch=EFFORT, **only)
        if isinstance(inner, faiss.IndexIVF):
            return parts.SearchParametersIVF(nprobe=max(LEAST_PROBED, round(inner.nlist * PROBED)), **only)
        return None

    def search(self, queries: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(cosines, positions) of the nearest of each query that it finds, best first, shapes (q, k); -inf and -1 where
        there is none. `among`: a mask of the rows that may be found."""
        queries = np.ascontiguousarray(queries, np.float32)
        wanted = min(CANDIDATES * k, len(self._matrix))
        effort = self._make_effort(among) if among is not None else self._effort
        _, candidates = self._index.search(queries, wanted, params=effort)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        places = np.full((len(queries), k), -1, np.int64)
        for row, found in enumerate(candidates):
            near = np.sort(found[found >= 0])
            near = near if among is None else near[among[near]]
            cosines = self._matrix[near] @ queries[row]
            best = np.argsort(-cosines, kind="stable")[:k]
            scores[row, : len(best)], places[row, : len(best)] = cosines[best], near[best]
        return scores, places


def sample_queries(matrix: np.ndarray) -> np.ndarray:
    """Unit vectors between two passages each, which no passage has, drawn alike for like matrices."""
    random = np.random.default_rng(len(matrix))
    first, second = (matrix[random.integers(0, len(matrix), SAMPLED)] for _ in range(2))
    between = first + second
    return between / np.maximum(np.linalg.norm(between, axis=1, keepdims=True), 1e-9)


def measure_recall(found: np.ndarray, exact: np.ndarray) -> float:
    """The share of the exact positions that were found; shapes (queries, k)."""
    shared = sum(len(set(ours) & set(theirs)) for ours, theirs in zip(found.tolist(), exact.tolist(), strict=True))
    return shared / exact.size
