"""Vectors in a file that processes share by memory map, and how the nearest are found: a query is compared with all, or
with those that an approximate index names (`neighbours`). A score is the inner product of unit vectors, the cosine.

Inner products of a few vectors with all rows come from FAISS's kernel, which takes a row for all vectors while it is
near. FAISS's own exhaustive search reads the matrix once a vector; one that repacks it for few vectors (OpenBLAS, MKL,
ONNX Runtime) takes two to three times as long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from serving.retrieval import neighbours
from serving.retrieval.index_folder import Shard, create_mapped
from serving.retrieval.neighbours import FLAT, MOST_ON_CARDS, Neighbours, OnCards

log = logging.getLogger(__name__)
KERNEL_ROWS = 65_536  # rows in one call of the kernel, which threads share
TOGETHER = 64  # vectors at most in one reading of the matrix: a block of their products stays in the cache
VECTORS = "vectors.npy"
BLOCK = 20_000  # vectors copied at a time
EXACT_AMONG = 20_000  # rows of a mask that are copied, and compared with all: an approximate index would miss some


def compute_products(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """`vectors @ matrix.T`, shape (vectors, documents), each row of the matrix read once."""
    scores = np.empty((len(vectors), len(matrix)), np.float32)
    for start, block in iterate_products(matrix, vectors):
        scores[:, start : start + len(block)] = block.T
    return scores


def find_nearest(
    matrix: np.ndarray, vectors: np.ndarray, k: int, among: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(products, positions) of the `k` rows with the highest product with each vector, best first, equal ones in order;
    shapes (vectors, k); -inf and -1 where there is none. `among`: a mask of the rows that count."""
    scores = np.full((len(vectors), k), -np.inf, np.float32)
    places = np.full((len(vectors), k), -1, np.int64)
    for first in range(0, len(vectors), TOGETHER):
        for start, block in iterate_products(matrix, vectors[first : first + TOGETHER]):
            for row, own in enumerate(block.T, first):
                is_near = own >= scores[row, -1]
                near = np.flatnonzero(is_near if among is None else is_near & among[start : start + len(own)])
                if len(near):
                    joined, where = np.append(scores[row], own[near]), np.append(places[row], start + near)
                    best = find_best(joined, k)
                    scores[row], places[row] = joined[best], where[best]
    return scores, places


def iterate_products(matrix: np.ndarray, vectors: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Where a block of the matrix starts, and its products, (rows, vectors); the array is used again for the next."""
    matrix, vectors = np.asarray(matrix), np.ascontiguousarray(vectors, np.float32)
    count, dimensions = vectors.shape
    assert dimensions == matrix.shape[1] and matrix.dtype == np.float32
    kernel: Any = faiss.fvec_inner_products_by_idx  # type: ignore[attr-defined]
    which = np.tile(np.arange(count, dtype=np.int64), min(KERNEL_ROWS, len(matrix)))
    pointers = faiss.swig_ptr(vectors), faiss.swig_ptr(which)
    block = np.empty((KERNEL_ROWS, count), np.float32)
    for start in range(0, len(matrix), KERNEL_ROWS):
        rows = matrix[start : start + KERNEL_ROWS]
        kernel(faiss.swig_ptr(block), faiss.swig_ptr(rows), *pointers, dimensions, len(rows), count)
        yield start, block[: len(rows)]


def find_best(scores: np.ndarray, k: int) -> np.ndarray:
    """Positions of the `k` highest scores, best first, equal ones in order."""
    k = min(k, len(scores))
    among = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return among[np.argsort(-scores[among], kind="stable")][:k]


class Vectors:
    """The dense part of an index folder, memory-mapped. Safe to share between threads.

    With `cards` a copy in their memory is searched if a FAISS for cards is installed; else a warning says that the CPU
    searches. The copy is the approximate index if that is of lists, else all vectors.
    """

    def __init__(self, folder: Path, cards: Sequence[int] = ()) -> None:
        self.matrix = np.load(folder / VECTORS, mmap_mode="r")
        cards = _require_cards(cards)
        self._near = Neighbours.open(folder, self.matrix, cards) if (folder / neighbours.FILE).exists() else None
        is_copied = self._near is not None and self._near.is_on_cards
        self._on_cards = _copy_to_cards(self.matrix, cards) if cards and not is_copied else None

    @property
    def is_exact(self) -> bool:
        """Whether a search compares with all vectors."""
        return self._near is None or self._on_cards is not None

    def search(self, queries: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(cosines, positions) of the `k` nearest of each query, best first, shapes (q, k); -1 where none was found.
        `among`: a mask of the rows that may be found, which a card's index does not take."""
        k = min(k, len(self.matrix))
        if self._on_cards is not None and among is None and k <= MOST_ON_CARDS:
            return self._on_cards.search(queries, k)
        if among is not None and np.count_nonzero(among) <= EXACT_AMONG:
            rows = np.append(np.flatnonzero(among), -1)  # the last stands for none
            scores, places = find_nearest(self.matrix[rows[:-1]], queries, k)
            return scores, rows[places]
        if self._near:
            scores, places = self._near.search(queries, k, among)
            if among is None or (places >= 0).all():
                return scores, places
        return find_nearest(self.matrix, queries, k, among)


def _require_cards(cards: Sequence[int]) -> Sequence[int]:
    """The cards; none, with a warning, where this FAISS sees none."""
    if not cards or faiss.get_num_gpus():
        return cards
    log.warning("vectors are searched on the CPU: FAISS sees no GPU; install the extra `gpu` in place of `dense`")
    return ()


def _copy_to_cards(matrix: np.ndarray, cards: Sequence[int]) -> OnCards:
    """All vectors in the cards' memory."""
    index = faiss.IndexFlatIP(matrix.shape[1])
    for start in range(0, len(matrix), BLOCK):
        index.add(np.ascontiguousarray(matrix[start : start + BLOCK]))
    return OnCards(index, cards)


def write(
    stage: Path, shards: Sequence[Shard], dimensions: int, factory: str, report: Callable[[int, int], object]
) -> dict[str, Any]:
    """The vectors of all shards, in the corpus's order, and the approximate index of them that `factory` names ("": by
    their number). Returns what the manifest says of it: `factory`, and `recall`, the share of the nearest ten that it
    finds. `report` is told how many of how many vectors are in it."""
    sizes = [len(shard.read("sizes")) for shard in shards]
    matrix = create_mapped(stage / VECTORS, np.float32, (sum(sizes), dimensions))
    start = 0
    for shard, size in zip(shards, sizes, strict=True):
        matrix[start : start + size] = shard.read("vectors")
        start += size
    factory = factory or neighbours.choose_factory(*matrix.shape)
    if factory == FLAT:
        return {"factory": FLAT, "recall": 1.0}
    return {"factory": factory, "recall": round(write_neighbours(stage, matrix, factory, report), 4)}


def write_neighbours(folder: Path, matrix: np.ndarray, factory: str, report: Callable[[int, int], object]) -> float:
    """Writes an approximate index of the matrix's rows, and returns its recall. Raises ConfigError as `build` does."""
    index = Neighbours(neighbours.build(matrix, factory, report), matrix)
    queries, depth = neighbours.sample_queries(matrix), min(neighbours.DEPTH, len(matrix))
    recall = index.widen(queries, find_nearest(matrix, queries, depth)[1])
    index.write(folder)
    return recall
