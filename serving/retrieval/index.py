"""An index folder that is open: plain search by BM25, vectors or both, and logical search over either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from revelator.errors import ArtifactError, ConfigError, InvalidRequest
from revelator.trace import Passage
from serving.retrieval.bm25 import BM25Scores
from serving.retrieval.dense import Vectors
from serving.retrieval.encoder import Encoder
from serving.retrieval.fusion import convex, reciprocal_ranks
from serving.retrieval.logical import best
from serving.retrieval.passages import PassageStore
from serving.retrieval.settings import Fusion, IndexSettings, read_manifest

DEPTH = 100  # of each ranking that a hybrid search joins
COSINE_WEIGHT = 0.5  # of the cosine in a convex combination; BM25 has the rest


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
        manifest = read_manifest(folder)
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
        return [self.found(scores, places) for scores, places in self._ranked(queries, k, fusion)]

    def found(self, scores: np.ndarray, places: np.ndarray) -> list[Passage]:
        """The passages at `places` with their scores."""
        return [replace(self.passages[int(i)], score=float(s)) for s, i in zip(scores, places, strict=True)]

    def _ranked(self, queries: Sequence[str], k: int, fusion: Fusion | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if self.vectors is None:
            for query in queries:
                scores = self._sparse(query)
                places = best(scores, k)
                places = places[scores[places] > 0]
                yield scores[places], places
            return
        vectors = self.encoder.queries(queries)
        near = self.vectors.search(vectors, k if self.bm25 is None else max(k, DEPTH))
        for query, vector, cosines, places in zip(queries, vectors, *near, strict=True):
            found = places >= 0
            if self.bm25 is None:
                yield cosines[found], places[found]
            else:
                yield self._joined(query, vector, places[found], k, fusion or self.settings.fusion)

    def _joined(
        self, query: str, vector: np.ndarray, near: np.ndarray, k: int, fusion: Fusion
    ) -> tuple[np.ndarray, np.ndarray]:
        assert self.vectors is not None
        sparse = self._sparse(query)
        shared = best(sparse, max(k, DEPTH))
        shared = shared[sparse[shared] > 0]
        if fusion == "rrf":
            scores, places = reciprocal_ranks([shared, near])
            return scores[:k], places[:k]
        places = np.union1d(shared, near)
        cosines = self.vectors.matrix[places] @ vector
        total = convex([sparse[places], cosines], [0.0, -1.0], [1 - COSINE_WEIGHT, COSINE_WEIGHT])
        order = best(total, k)
        return total[order], places[order]

    def _sparse(self, query: str) -> np.ndarray:
        if self.bm25 is None:
            hint = f"it was built with --kind {self.settings.kind}"
            raise ConfigError("this index holds no BM25 scores", where=str(self.folder), hint=hint)
        return self.bm25.scores(query)
