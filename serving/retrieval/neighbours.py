"""An approximate index of vectors by FAISS: it finds which passages are near without a comparison with all of them; how
near they are is computed exactly. How much of it a search looks at is found out when it is built, and kept in its file.

Which kind there is, a factory string says (Douze et al. 2024, section 5): `HNSW32` is a graph of neighbours (Malkov and
Yashunin 2018), `IVF4096,PQ48` lists by cluster with codes of 48 bytes. Below `EXACT_BELOW` passages the comparison with
all takes milliseconds, so there is none.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np

from revelator.errors import ConfigError

log = logging.getLogger(__name__)
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
KEPT = 128  # candidates that are kept while a graph is built or searched
PROBED = 1 / 16  # of the lists that a search reads, `LEAST_PROBED` at least
LEAST_PROBED = 8
# Of the nearest: where fewer are found, a search looks at twice as much, and so on. Drawn queries are easier than
# questions: of IVF-PQ, .98 of the former's came with .959 to .967 of the latter's, .998 with .985 or more
# (10,000 to a million passages: docs/operations.md).
WANTED = 0.998
MOST_EFFORT = 16  # times as much, at most
MOST_ON_CARDS = 2_048  # passages that FAISS finds on a card at most, and lists that it reads there
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
        inner.hnsw.efConstruction = KEPT
    if hasattr(inner, "do_polysemous_training"):
        inner.do_polysemous_training = False  # minutes, for a way to search that is not used
    return index


def build(matrix: np.ndarray, factory: str, report: Callable[[int, int], object]) -> Any:
    """Builds the index of the matrix's rows; `report` is told how many of how many are in it. Raises ConfigError where
    there are too few vectors to train it, or where it takes none."""
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
    return index


class OnCards:
    """A copy of a Flat or an IVF index in the memory of cards: each holds a part, and searches it. FAISS has no graph
    there, no parameters of one search, and takes one search at a time. Raises RuntimeError for another kind of index.
    """

    def __init__(self, index: Any, cards: Sequence[int]) -> None:
        gpu: Any = faiss
        settings = gpu.GpuMultipleClonerOptions()
        settings.shard = True
        self._index = gpu.index_cpu_to_gpus_list(index, settings, list(cards))  # `index_cpu_to_all_gpus` of some
        self._lock = threading.Lock()

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            return self._index.search(np.ascontiguousarray(queries, np.float32), k)


class Neighbours:
    """An approximate index, and the vectors. Safe to share between threads. An index of lists is searched on `cards`,
    where it `is_on_cards` then."""

    def __init__(self, index: Any, matrix: np.ndarray, cards: Sequence[int] = ()) -> None:
        self._index, self._matrix = index, matrix
        self._inner: Any = faiss.downcast_index(index)
        self._effort = self._read_effort()
        self._on_cards = self._copy_to_cards(cards) if cards and isinstance(self._inner, faiss.IndexIVF) else None

    @classmethod
    def open(cls, folder: Path, matrix: np.ndarray, cards: Sequence[int] = ()) -> Self:
        """The index of a folder, memory-mapped. Raises ValueError for one that cannot be read, or of other vectors."""
        try:
            index = faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP_IFC)
        except FAULTS as error:
            raise ValueError(f"{FILE}: {explain_fault(error)}") from error
        if index.ntotal != len(matrix):
            raise ValueError(f"{FILE} has {index.ntotal} vectors, and there are {len(matrix)}")
        return cls(index, matrix, cards)

    def write(self, folder: Path) -> None:
        faiss.write_index(self._index, str(folder / FILE))

    @property
    def is_on_cards(self) -> bool:
        return self._on_cards is not None

    @property
    def effort(self) -> int:
        """How many times as much a search looks at as one of a small index does."""
        return self._effort

    @effort.setter
    def effort(self, effort: int) -> None:
        if isinstance(self._inner, faiss.IndexHNSW):
            self._inner.hnsw.efSearch = KEPT * effort
        if isinstance(self._inner, faiss.IndexIVF):
            self._inner.nprobe = self._least_probed * effort
        self._effort = self._read_effort()

    def _read_effort(self) -> int:
        if isinstance(self._inner, faiss.IndexHNSW):
            return max(1, self._inner.hnsw.efSearch // KEPT)
        if isinstance(self._inner, faiss.IndexIVF):
            return max(1, round(self._inner.nprobe / self._least_probed))
        return 1

    @property
    def _least_probed(self) -> int:
        return max(LEAST_PROBED, round(self._inner.nlist * PROBED))

    def widen(self, queries: np.ndarray, exact: np.ndarray) -> float:
        """Lets a search look at twice as much until it finds `WANTED` of the exact positions, shape (queries, k), finds
        no more by it, or looks at `MOST_EFFORT` times as much. Returns the share that it finds."""
        recall = measure_recall(self.search(queries, exact.shape[1])[1], exact)
        while recall < WANTED and (before := self.effort) < MOST_EFFORT:
            self.effort = 2 * before
            wider = measure_recall(self.search(queries, exact.shape[1])[1], exact)
            if wider <= recall:
                self.effort = before
                break
            recall = wider
        return recall

    def _copy_to_cards(self, cards: Sequence[int]) -> OnCards | None:
        self._inner.nprobe = min(self._least_probed * self.effort, MOST_ON_CARDS)
        try:
            return OnCards(self._inner, cards)
        except FAULTS as error:
            log.warning("the vectors' index is searched on the CPU: %s", explain_fault(error))
            return None

    def _make_parameters(self, among: np.ndarray | None) -> Any:
        """The parameters of a search, `among` the rows of a mask; None for a kind of index that takes none."""
        parts: Any = faiss  # its stubs know no parameters of a search
        only = {} if among is None else {"sel": parts.IDSelectorBitmap(np.packbits(among, bitorder="little"))}
        if isinstance(self._inner, faiss.IndexHNSW):
            return parts.SearchParametersHNSW(efSearch=KEPT * self.effort, **only)
        if isinstance(self._inner, faiss.IndexIVF):
            return parts.SearchParametersIVF(nprobe=self._least_probed * self.effort, **only)
        return None

    def search(self, queries: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(cosines, positions) of the nearest of each query that it finds, best first, shapes (q, k); -inf and -1 where
        there is none. `among`: a mask of the rows that may be found."""
        queries = np.ascontiguousarray(queries, np.float32)
        wanted = min(max(CANDIDATES * k, CANDIDATES * self.effort * DEPTH), len(self._matrix))
        if self._on_cards and among is None and k <= MOST_ON_CARDS:
            _, candidates = self._on_cards.search(queries, min(wanted, MOST_ON_CARDS))
        else:
            _, candidates = self._index.search(queries, wanted, params=self._make_parameters(among))
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
