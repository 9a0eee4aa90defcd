"""An index folder that is open: search by BM25, vectors or both, and the retriever that searches it in threads.

Two rankings become one by reciprocal rank fusion (Cormack, Clarke and Büttcher 2009) or by a convex combination (Bruch,
Gai and Ingber 2023, with their theoretical minimum, BM25 0 and cosine -1, in the normalisation).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from revelator.errors import ArtifactError, ConfigError, InvalidRequest
from revelator.trace import Passage
from serving.batching import Batcher
from serving.retrieval.bm25 import BM25Scores
from serving.retrieval.dense import Vectors, find_best
from serving.retrieval.encoder import BATCH, Encoder
from serving.retrieval.index_folder import INDEX, Fusion, IndexSettings, PassageStore

RRF_CONSTANT = 60
DEPTH = 100  # of each ranking that a hybrid search joins
COSINE_WEIGHT = 0.5  # of the cosine in a convex combination; BM25 has the rest


def fuse_ranks(rankings: Sequence[np.ndarray], constant: int = RRF_CONSTANT) -> tuple[np.ndarray, np.ndarray]:
    """(scores, positions), best first, from rankings of positions: the sum of 1 / (constant + rank), rank from 1."""
    places = np.concatenate(rankings)
    shares = np.concatenate([1 / (constant + np.arange(1, len(ranking) + 1)) for ranking in rankings])
    distinct, member = np.unique(places, return_inverse=True)
    scores = np.bincount(member, shares, len(distinct))
    order = np.argsort(-scores, kind="stable")
    return scores[order], distinct[order]


def combine_convexly(scores: Sequence[np.ndarray], minima: Sequence[float], weights: Sequence[float]) -> np.ndarray:
    """The weighted sum of scores, each brought to [0, 1] by its least possible and its highest value, shape (n,)."""
    total = np.zeros(len(scores[0]))
    for values, low, weight in zip(scores, minima, weights, strict=True):
        span = float(values.max(initial=low)) - low
        if span > 0:
            total += weight * (values - low) / span
    return total


class Index:
    """An index folder, memory-mapped. Safe to share between threads.

    `manifest` and `settings` say how it was built, `bm25` and `vectors` are its parts (None where it has none).
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        names = {field.name for field in fields(IndexSettings)}
        self.settings = IndexSettings(**{k: v for k, v in manifest["settings"].items() if k in names})
        self.passages = PassageStore(folder)
        self.bm25 = BM25Scores(folder) if self.settings.sparse else None
        self.vectors = Vectors(folder, self.settings.faiss) if self.settings.dense else None

    @classmethod
    def open(cls, folder: Path) -> Index:
        """Opens a folder that `build_index` made. ArtifactError names the file that is missing or has another size."""
        manifest = INDEX.read_manifest(folder)
        try:
            return cls(folder, manifest)
        except (OSError, ValueError, KeyError, RuntimeError) as error:  # FAISS raises RuntimeError
            hint = f"see which file is damaged: revelator index info {folder} --verify"
            raise ArtifactError(f"cannot be read: {error}", where=str(folder), hint=hint) from error

    def __len__(self) -> int:
        return len(self.passages)

    @cached_property
    def encoder(self) -> Encoder:
        """The model that made the vectors; ArtifactError if the one of that name is another one by now."""
        encoder = Encoder.open(self.settings.model, self.settings.max_tokens)
        built = self.manifest["model"]
        if encoder.digest != built["digest"]:
            raise ArtifactError(
                f"the model {built['name']!r} is not the one that this index was built with",
                where=str(self.folder),
                hint="build the index again, or give the model its former files",
            )
        return encoder

    def search(self, query: str, k: int, *, fusion: Fusion | None = None) -> list[Passage]:
        """At most `k` passages, best first; equal scores in the corpus's order.

        BM25 gives passages that share a term with the query, dense the nearest by cosine, hybrid the two joined by
        `fusion` (the index's own by default).
        """
        return self.search_many([query], k, fusion=fusion)[0]

    def search_many(self, queries: Sequence[str], k: int, *, fusion: Fusion | None = None) -> list[list[Passage]]:
        """`search` for each query: BM25 takes them one by one; for vectors, all are embedded in one batch and compared
        in one call."""
        if k < 1:
            raise InvalidRequest(f"k must be 1 or more, not {k}")
        return [self.read_passages(scores, places) for scores, places in self._rank(queries, k, fusion)]

    def read_passages(self, scores: np.ndarray, places: np.ndarray) -> list[Passage]:
        """The passages at `places` with their scores."""
        return [replace(self.passages[int(i)], score=float(s)) for s, i in zip(scores, places, strict=True)]

    def _rank(self, queries: Sequence[str], k: int, fusion: Fusion | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if self.vectors is None:
            for query in queries:
                scores = self._score_sparse(query)
                places = find_best(scores, k)
                places = places[scores[places] > 0]
                yield scores[places], places
            return
        vectors = self.encoder.encode_queries(queries)
        near = self.vectors.search(vectors, k if self.bm25 is None else max(k, DEPTH))
        for query, vector, cosines, places in zip(queries, vectors, *near, strict=True):
            found = places >= 0
            if self.bm25 is None:
                yield cosines[found], places[found]
            else:
                yield self._fuse(query, vector, places[found], k, fusion or self.settings.fusion)

    def _fuse(
        self, query: str, vector: np.ndarray, near: np.ndarray, k: int, fusion: Fusion
    ) -> tuple[np.ndarray, np.ndarray]:
        assert self.vectors is not None
        sparse = self._score_sparse(query)
        shared = find_best(sparse, max(k, DEPTH))
        shared = shared[sparse[shared] > 0]
        if fusion == "rrf":
            scores, places = fuse_ranks([shared, near])
            return scores[:k], places[:k]
        places = np.union1d(shared, near)
        cosines = self.vectors.matrix[places] @ vector
        total = combine_convexly([sparse[places], cosines], [0.0, -1.0], [1 - COSINE_WEIGHT, COSINE_WEIGHT])
        order = find_best(total, k)
        return total[order], places[order]

    def _score_sparse(self, query: str) -> np.ndarray:
        if self.bm25 is None:
            hint = f"it was built with --kind {self.settings.kind}"
            raise ConfigError("this index holds no BM25 scores", where=str(self.folder), hint=hint)
        return self.bm25.score(query)


class LocalRetriever:
    """Searches run in threads, so the loop stays free: by words, `threads` of them side by side; over vectors in one
    thread, those that wait together in one batch, because a model reads many queries in little more than the time of
    one, and takes one caller at a time."""

    def __init__(self, index: Index, *, threads: int = 2) -> None:
        self.index = index
        workers = threads if index.vectors is None else 1
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="search")
        self._batcher: Batcher[int, str, list[Passage]] = Batcher(self._search_many, BATCH)

    async def search(self, query: str, k: int) -> list[Passage]:
        if self.index.vectors is None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self.index.search, query, k)
        [found] = await self._batcher.submit(k, [query])
        return found

    async def _search_many(self, k: int, queries: Sequence[str]) -> list[list[Passage]]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.index.search_many, queries, k)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
