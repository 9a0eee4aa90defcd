"""What a search asks of an index, whichever engine holds it: the files of a folder (`serving.retrieval.index`), or a
collection of Milvus (`serving.retrieval.milvus_index`).

Passages are added and removed by `serving.retrieval.build`, not here: a search changes nothing. Beside searching,
scoring and describing, a service asks whether another version stands there, a logical query for candidates, and who
reads a citation for the passage and its neighbours.

A place is what an engine finds a passage by: its position in a folder, its id in a collection. Who searches an index
hands places back as they came.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any, Protocol, Self

import numpy as np

from revelator.trace import Passage
from serving.protocols import PUBLIC, PassagePlace, Scope, SearchResult
from serving.retrieval.embedders import Embedder
from serving.retrieval.index_folder import IndexSettings


class SearchIndex(Protocol):
    """One version of an index, open. Safe to share between threads; every method may wait for the engine, but for
    `read_stamp` and `find_state`. What it gives is of the scope that is asked for.

    Raises Unavailable for an engine that does not answer, DeadlineExceeded for one that does so too late, and
    ArtifactError for an index that is gone.
    """

    settings: IndexSettings
    manifest: dict[str, Any]

    @property
    def stamp(self) -> Hashable: ...

    @property
    def where(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def encoder(self) -> Embedder: ...

    def __len__(self) -> int: ...

    def read_stamp(self) -> Hashable:
        """What differs from `stamp` as soon as another version may stand there."""

    def reopen(self) -> Self:
        """The version that stands there by now; itself where that is the same."""

    def find_state(self) -> str | None:
        """A digest of what it holds; None where that is not known."""

    def search_many(self, queries: Sequence[str], k: int, scope: Scope = PUBLIC) -> list[SearchResult]:
        """At most `k` passages for each query in words, best first."""

    def find_candidates(
        self, terms: Sequence[str], vectors: np.ndarray | None, sparse: bool, depth: int, scope: Scope = PUBLIC
    ) -> np.ndarray | None:
        """The places of the `depth` best passages for one of the terms, or of all; None where all passages of the
        index are compared."""

    def score_terms(
        self,
        terms: Sequence[str],
        vectors: np.ndarray | None,
        sparse: bool,
        places: np.ndarray | None,
        scope: Scope = PUBLIC,
    ) -> list[np.ndarray]:
        """The score of each term for the passages at `places`: its vector's cosine, with `sparse` BM25 over the term's
        best score in the scope, or with both their mean."""

    def find_places(self, ids: Collection[str]) -> dict[str, Any]:
        """The place of each passage, of those that the index holds."""

    def count_found(self, scope: Scope = PUBLIC) -> int:
        """How many passages the scope has."""

    def require_fields(self, scope: Scope) -> None:
        """Raises InvalidRequest for a filter that does not fit what the caller may read."""

    def read_passages(self, scores: np.ndarray, places: np.ndarray, scope: Scope = PUBLIC) -> list[Passage]: ...

    def open_passage(self, id: str, scope: Scope = PUBLIC) -> PassagePlace | None: ...

    def describe(self, scope: Scope = PUBLIC) -> dict[str, Any]: ...
