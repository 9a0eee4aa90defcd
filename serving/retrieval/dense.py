"""Vectors in a file that processes share by memory map, and how the nearest are found.

`flat` compares a query with every vector of the file. `ivf`, `hnsw` and `pq` are FAISS indexes beside it (Douze et al.
2024) that propose candidates; these are scored again with the file's vectors, so that a score is the inner product of
unit vectors, the cosine, whatever found it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from revelator.errors import ConfigError
from serving.passages import mapped
from serving.retrieval.settings import IndexSettings
from serving.retrieval.shards import Shard

VECTORS = "vectors.npy"
FAISS = "faiss.index"
TRAINING = 200_000  # vectors at most that quantizers are trained on: 300 MB at 384 dimensions
PQ_SMALLEST = 256  # as many vectors as a byte has codes
CANDIDATES = 4  # proposed by an approximate index for each that is wanted, and 50 more
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 32, 80, 128


class Vectors:
    """The dense part of an index folder, memory-mapped. Safe to share between threads."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.matrix = np.load(folder / VECTORS, mmap_mode="r")
        flags = faiss.IO_FLAG_MMAP if kind == "ivf" else faiss.IO_FLAG_MMAP_IFC
        self._faiss = None if kind == "flat" else _on_gpu(faiss.read_index(str(folder / FAISS), flags))
        self._gpu = faiss.StandardGpuResources() if self._faiss is None and _gpus() else None

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(cosines, positions) of the `k` nearest of each query, best first, shapes (q, k); -1 where none was found."""
        k = min(k, len(self.matrix))
        if self._faiss is None:
            return self._exact(queries, k)
        proposed = self.candidates(queries, min(len(self.matrix), CANDIDATES * k + 50))
        scores = np.full((len(queries), k), -np.inf, np.float32)
        places = np.full((len(queries), k), -1, np.int64)
        for row, among in enumerate(proposed):
            among = np.unique(among[among >= 0])
            cosines = self.matrix[among] @ queries[row]
            order = np.argsort(-cosines, kind="stable")[:k]
            scores[row, : len(order)], places[row, : len(order)] = cosines[order], among[order]
        return scores, places

    def candidates(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Positions that the index proposes, shape (q, k), -1 where it has no more."""
        if self._faiss is None:
            return self._exact(queries, k)[1]
        return self._faiss.search(np.ascontiguousarray(queries, np.float32), k)[1]

    def _exact(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        queries, inner = np.ascontiguousarray(queries, np.float32), faiss.METRIC_INNER_PRODUCT
        if self._gpu is not None:
            return faiss.knn_gpu(self._gpu, queries, np.asarray(self.matrix), k, metric=inner)
        return faiss.knn(queries, np.asarray(self.matrix), k, metric=inner)


def write(stage: Path, shards: Sequence[Shard], settings: IndexSettings, dimensions: int) -> dict[str, Any]:
    """The vectors of all shards and the FAISS index over them; returns the index's parameters."""
    sizes = [len(shard.sizes) for shard in shards]
    count = sum(sizes)
    if settings.faiss == "pq" and count < PQ_SMALLEST:
        raise ConfigError(
            f"pq needs {PQ_SMALLEST} passages or more, not {count}", where="--faiss", hint="take --faiss flat"
        )
    matrix = mapped(stage / VECTORS, np.float32, (count, dimensions))
    start = 0
    for shard, size in zip(shards, sizes, strict=True):
        matrix[start : start + size] = shard.vectors
        start += size
    if settings.faiss == "flat":
        return {"kind": "flat"}
    index, parameters = _empty(settings.faiss, count, dimensions)
    if not index.is_trained:
        rows = np.sort(np.random.default_rng(0).permutation(count)[:TRAINING])
        index.train(np.ascontiguousarray(matrix[rows]))
    for start in range(0, count, TRAINING):
        index.add(np.ascontiguousarray(matrix[start : start + TRAINING]))
    faiss.write_index(index, str(stage / FAISS))
    return parameters


def _empty(kind: str, count: int, dimensions: int) -> tuple[Any, dict[str, Any]]:
    inner = faiss.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        graph = faiss.IndexHNSWFlat(dimensions, HNSW_LINKS, inner)
        graph.hnsw.efConstruction, graph.hnsw.efSearch = HNSW_BUILD, HNSW_SEARCH
        return graph, {"kind": kind, "links": HNSW_LINKS, "build": HNSW_BUILD, "search": HNSW_SEARCH}
    if kind == "pq":
        parts = next(parts for parts in range(max(1, dimensions // 8), 0, -1) if dimensions % parts == 0)
        return faiss.IndexPQ(dimensions, parts, 8, inner), {"kind": kind, "bytes": parts}
    lists = max(1, min(round(4 * math.sqrt(count)), count // 39))  # FAISS asks for 39 vectors a list to train
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, lists, inner)
    index.nprobe = min(lists, max(16, lists // 8))
    return index, {"kind": kind, "lists": lists, "probed": index.nprobe}


def _gpus() -> int:
    return faiss.get_num_gpus() if hasattr(faiss, "StandardGpuResources") else 0


def _on_gpu(index: Any) -> Any:
    """The index on all GPUs where faiss-gpu is installed and has one; HNSW stays where it is."""
    return faiss.index_cpu_to_all_gpus(index) if _gpus() and not isinstance(index, faiss.IndexHNSW) else index
