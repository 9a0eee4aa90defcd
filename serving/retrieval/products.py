"""Inner products of a few vectors with all rows of a matrix, or with some: FAISS's kernel, float32.

It takes a row of the matrix for all vectors while it is near. FAISS's own exhaustive search reads the matrix once a
vector, and one that repacks it for few vectors (OpenBLAS, MKL, ONNX Runtime) takes two to three times as long; figures:
docs/logic.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from serving.retrieval.logical import best

BLOCK = 65_536  # rows in one call of the kernel, which threads share
TOGETHER = 64  # vectors at most in one reading of the matrix: a block of their products stays in the cache
NEAR = 512  # rows here and there that stay in the cache until all vectors have met them


def products(matrix: np.ndarray, vectors: np.ndarray, places: np.ndarray | None = None) -> np.ndarray:
    """`vectors @ matrix.T`, shape (vectors, documents), each row of the matrix read once. Of the rows at `places` if
    they are given, which are read where they lie."""
    if places is not None:
        return _products_at(np.asarray(matrix), _plain(vectors), np.asarray(places, np.int64))
    scores = np.empty((len(vectors), len(matrix)), np.float32)
    for start, block in blocks(matrix, vectors):
        scores[:, start : start + len(block)] = block.T
    return scores


def nearest(matrix: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(products, positions) of the `k` rows with the highest product with each vector, best first, equal ones in order;
    shapes (vectors, k); -inf and -1 where there is none."""
    scores = np.full((len(vectors), k), -np.inf, np.float32)
    places = np.full((len(vectors), k), -1, np.int64)
    for first in range(0, len(vectors), TOGETHER):
        group = vectors[first : first + TOGETHER]
        tops = [Top(k) for _ in group]
        for start, block in blocks(matrix, group):
            for top, own in zip(tops, block.T, strict=True):
                top.add_block(own, start)
        for row, top in enumerate(tops, first):
            scores[row, : len(top.scores)], places[row, : len(top.places)] = top.scores, top.places
    return scores, places


class Top:
    """The `k` best of what was added, best first, equal ones in the order in which they came."""

    def __init__(self, k: int) -> None:
        self._k = k
        self.scores = np.empty(0, np.float32)
        self.places = np.empty(0, np.int64)

    @property
    def least(self) -> float:
        """What a score must reach to be among them."""
        return float(self.scores[-1]) if len(self.scores) == self._k else -np.inf

    def add(self, scores: np.ndarray, places: np.ndarray) -> None:
        if not len(scores):
            return
        scores, places = np.append(self.scores, scores), np.append(self.places, places)
        kept = best(scores, self._k)
        self.scores, self.places = scores[kept], places[kept]

    def add_block(self, scores: np.ndarray, start: int) -> None:
        """Those of a row of places, from `start` on."""
        rows = np.flatnonzero(scores >= self.least)
        self.add(scores[rows], start + rows)


def blocks(matrix: np.ndarray, vectors: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Where a block of the matrix starts, and its products, (rows, vectors); the array is used again for the next."""
    matrix, vectors = np.asarray(matrix), _plain(vectors)
    count, dimensions = vectors.shape
    assert dimensions == matrix.shape[1] and matrix.dtype == np.float32
    kernel: Any = faiss.fvec_inner_products_by_idx  # type: ignore[attr-defined]
    which = np.tile(np.arange(count, dtype=np.int64), min(BLOCK, len(matrix)))
    pointers = faiss.swig_ptr(vectors), faiss.swig_ptr(which)
    block = np.empty((BLOCK, count), np.float32)
    for start in range(0, len(matrix), BLOCK):
        rows = matrix[start : start + BLOCK]
        kernel(faiss.swig_ptr(block), faiss.swig_ptr(rows), *pointers, dimensions, len(rows), count)
        yield start, block[: len(rows)]


def _products_at(matrix: np.ndarray, vectors: np.ndarray, places: np.ndarray) -> np.ndarray:
    count, dimensions = vectors.shape
    scores = np.empty((count, len(places)), np.float32)
    kernel: Any = faiss.fvec_inner_products_by_idx  # type: ignore[attr-defined]
    pointers = faiss.swig_ptr(vectors), faiss.swig_ptr(matrix)
    for start in range(0, len(places), NEAR):
        which = np.tile(places[start : start + NEAR], count)
        block = np.empty((count, len(which) // count), np.float32)
        kernel(faiss.swig_ptr(block), *pointers, faiss.swig_ptr(which), dimensions, count, block.shape[1])
        scores[:, start : start + NEAR] = block
    return scores


def _plain(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors, np.float32)
