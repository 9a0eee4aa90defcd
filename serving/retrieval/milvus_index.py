"""An index in Milvus that is open: search by BM25, vectors or both inside the engine, and scores of single passages.

The passages of a collection change in place: there is one version, and a search while one is made finds what is there
by then. The manifest is looked at again every `LOOK` seconds while questions are asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from revelator.errors import ArtifactError, InvalidRequest
from revelator.folders import digest_manifest
from revelator.trace import Passage
from serving.protocols import OWNER, PUBLIC, PassagePlace, Scope, SearchResult
from serving.retrieval.embedders import Embedder, is_made_by, open_embedder
from serving.retrieval.fusion import RRF_CONSTANT
from serving.retrieval.index import DEPTH, NAMED
from serving.retrieval.index_folder import IndexSettings, read_settings
from serving.retrieval.milvus_collection import MilvusAddress, MilvusCollection, list_ids
from serving.retrieval.milvus_fields import Vocabulary, quote
from serving.retrieval.words import extract_query_terms

LOOK = 2.0  # seconds
EF = 256  # passages that a search of the graph compares at least
MOST = 16_384  # results of a search that Milvus gives at most
FETCHED = 500  # passages that are asked for by their ids at a time
TEXTS = ["title", "text"]
IDS = ["id"]


class MilvusIndex:
    """One version of an index in Milvus (`serving.retrieval.engine.SearchIndex`); a place is a passage's id."""

    def __init__(self, collection: MilvusCollection, head: Mapping[str, Any]) -> None:
        self.collection = collection
        self.manifest = collection.require_manifest(head)
        self.settings: IndexSettings = read_settings(self.manifest)
        self._vocabulary = Vocabulary(self.manifest)
        self.stamp = self.read_stamp()
        self._is_changing = bool(head["changing"])
        self._state = digest_manifest(self.manifest)
        collection.check_fields(self.settings, self.manifest.get("model", {}).get("dimensions", 0))

    @classmethod
    def open(cls, address: MilvusAddress) -> MilvusIndex:
        """Connects to what `build_index` made. Raises ArtifactError for what is none, and what `MilvusCollection` and
        its calls raise."""
        collection = MilvusCollection(address)
        return cls(collection, collection.read_head())

    @property
    def where(self) -> str:
        return self.collection.where

    @property
    def version(self) -> int:
        return int(self.manifest["version"])

    def __len__(self) -> int:
        return int(self.manifest["count"])

    @cached_property
    def encoder(self) -> Embedder:
        """The model that made the vectors; ArtifactError if the one of that name is another one by now."""
        encoder = open_embedder(self.settings)
        if not is_made_by(self.manifest, encoder):
            message = f"the model {encoder.name!r} is not the one that this index was built with"
            raise ArtifactError(message, where=self.where, hint="build another, or give the model its former files")
        return encoder

    def read_stamp(self) -> int:
        return int(time.monotonic() / LOOK)

    def reopen(self) -> MilvusIndex:
        head = self.collection.read_head()
        if head.get("version") == self.version and bool(head["changing"]) == self._is_changing:
            self.stamp = self.read_stamp()
            return self
        index = MilvusIndex(self.collection, head)
        if index.settings.dense and index.settings == self.settings and is_made_by(index.manifest, self.encoder):
            index.encoder = self.encoder
        return index

    def find_state(self) -> str | None:
        return None if self._is_changing else self._state

    def search_many(self, queries: Sequence[str], k: int, scope: Scope = PUBLIC) -> list[SearchResult]:
        """At most `k` passages of the scope for each query, best first: by BM25 those that share a term with it."""
        if k < 1:
            raise InvalidRequest(f"k must be 1 or more, not {k}")
        within = self._vocabulary.write_expression(scope)
        k = min(k, MOST)
        words = [self._write_words(query) for query in queries]
        vectors = self.encoder.encode_queries(queries) if self.settings.dense else None
        if vectors is not None and not self.settings.sparse:
            return self._search("vector", vectors, k, condition=within)
        results = [SearchResult() for _ in queries]
        for has_words in (True, False):  # a call each
            chosen = [number for number, text in enumerate(words) if bool(text) == has_words]
            texts = [words[number] for number in chosen] if has_words else []
            found: list[SearchResult] = []
            if chosen and vectors is not None:
                found = self._search_both(vectors[chosen], texts, k, within)
            elif texts:
                found = self._search("sparse", texts, k, condition=within)
            for number, result in zip(chosen, found, strict=False):
                results[number] = result
        return results

    def find_candidates(
        self, terms: Sequence[str], vectors: np.ndarray | None, sparse: bool, depth: int, scope: Scope = PUBLIC
    ) -> np.ndarray | None:
        depth, within = min(depth, MOST), self._vocabulary.write_expression(scope)
        found = [] if vectors is None else self._search("vector", vectors, depth, IDS, within)
        if sparse:
            texts = [text for term in terms if (text := self._write_words(term))]
            found += [self._search("sparse", [text], depth, IDS, within)[0] for text in texts]
        return np.array(sorted({passage.id for result in found for passage in result}), object)

    def score_terms(
        self,
        terms: Sequence[str],
        vectors: np.ndarray | None,
        sparse: bool,
        places: np.ndarray | None,
        scope: Scope = PUBLIC,
    ) -> list[np.ndarray]:
        assert places is not None  # a collection is never compared whole
        cosines = None if vectors is None else self._compute_cosines(vectors, places)
        if cosines is not None and not sparse:
            return list(cosines)
        within = self._vocabulary.write_expression(scope)
        words = [self._score_words(term, places, within) for term in terms]
        return words if cosines is None else [(own + w) / 2 for own, w in zip(cosines, words, strict=True)]

    def find_places(self, ids: Collection[str]) -> dict[str, Any]:
        return {row["id"]: row["id"] for row in self._fetch(list(ids), ["id"])}

    def count_found(self, scope: Scope = PUBLIC) -> int:
        within = self._vocabulary.write_expression(scope)
        return int(self._query(within, ["count(*)"])[0]["count(*)"]) if within else len(self)

    def require_fields(self, scope: Scope) -> None:
        self._vocabulary.require_fields(scope)

    def read_passages(self, scores: np.ndarray, places: np.ndarray, scope: Scope = PUBLIC) -> list[Passage]:
        """The passages at `places`; one that was removed meanwhile, or left the scope, is left out."""
        rows = {row["id"]: row for row in self._fetch(list(places), ["id", *TEXTS], scope)}
        found = zip(places, scores, strict=True)
        return [_read_passage(id, rows[id], score) for id, score in found if id in rows]

    def open_passage(self, id: str, scope: Scope = PUBLIC) -> PassagePlace | None:
        readable = Scope(groups=scope.groups)
        rows = self._fetch([id], ["id", "source", "place", *TEXTS], readable)
        if not rows:
            return None
        passage, place = _read_passage(id, rows[0]), rows[0]["place"]
        condition = f"source == {quote(rows[0]['source'])} and place in [{place - 1}, {place + 1}]"
        rows = self._query(self._restrict(condition, readable), ["id", "place", *TEXTS])
        beside = {row["place"]: _read_passage(row["id"], row) for row in rows}
        around = (beside.get(place - 1), beside.get(place + 1))
        before, after = (one if one and one.file and one.file == passage.file else None for one in around)
        return PassagePlace(passage, before, after)

    def describe(self, scope: Scope = PUBLIC) -> dict[str, Any]:
        """What it holds that the groups of the scope may read: the names of the first `NAMED` documents, and the kinds
        of values by field."""
        counts = self._vocabulary.count_passages(scope.groups)
        names = [corpus["name"] for corpus in self.manifest["corpora"] if corpus["name"] in counts]
        return {
            "kind": self.settings.kind,
            "model": self.settings.model,
            "version": self.version,
            "passages": sum(counts.values()),
            "documents": len(names),
            "first_documents": names[:NAMED],
            "fields": self._vocabulary.list_fields(scope.groups),
        }

    def _write_words(self, query: str) -> str:
        return " ".join(extract_query_terms(query)) if self.settings.sparse else ""

    def _search(
        self, field: str, data: np.ndarray | Sequence[str], k: int, fields: Sequence[str] = TEXTS, condition: str = ""
    ) -> list[SearchResult]:
        """The passages nearest to each of `data`: vectors, or terms."""
        asked: dict[str, Any] = {"data": _make_plain(data), "anns_field": field, "limit": k, "filter": condition}
        how: dict[str, Any] = {"search_params": _choose_params(field, k), "output_fields": [*fields]}
        found = self.collection.call("search", self.collection.name, **asked, **how)
        sign = abs if field == "sparse" else float  # Milvus Lite gives BM25 as a distance, which is below 0
        return [_read_hits(hits, sign) for hits in found]

    def _search_both(self, vectors: np.ndarray, words: Sequence[str], k: int, condition: str) -> list[SearchResult]:
        """The two rankings of each query within the condition, joined by the engine as
        `serving.retrieval.fusion.fuse_ranks` joins them; without `words` the one by vectors, scored alike."""
        from pymilvus import AnnSearchRequest, RRFRanker

        depth = max(k, DEPTH)
        asked = [("vector", _make_plain(vectors)), *([("sparse", _make_plain(words))] if words else [])]
        requests = [
            AnnSearchRequest(data, field, _choose_params(field, depth), depth, condition or None)
            for field, data in asked
        ]
        how: dict[str, Any] = {"ranker": RRFRanker(RRF_CONSTANT), "limit": k, "output_fields": TEXTS}
        found = self.collection.call("hybrid_search", self.collection.name, requests, **how)
        return [_read_hits(hits) for hits in found]

    def _compute_cosines(self, vectors: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Products with the vectors as they are stored, which no approximate index has a part in."""
        stored = {row["id"]: row["vector"] for row in self._fetch(list(places), ["id", "vector"])}
        absent = np.zeros(vectors.shape[1], np.float32)
        rows = [stored.get(id, absent) for id in places]
        return vectors @ np.array(rows, np.float32).reshape(len(places), -1).T

    def _score_words(self, term: str, places: np.ndarray, within: str) -> np.ndarray:
        """BM25 of a term's words over the term's best score within a condition, in [0, 1]."""
        text = self._write_words(term)
        if not text or not len(places):
            return np.zeros(len(places), np.float32)
        best = self._search("sparse", [text], 1, IDS, within)[0]
        found: dict[str, float] = {}
        for start in range(0, len(places), FETCHED):
            some = list(places[start : start + FETCHED])
            hits = self._search("sparse", [text], len(some), IDS, list_ids(some))[0]
            found |= {passage.id: passage.score for passage in hits}
        highest = max([passage.score for passage in best] + [1e-9])
        return np.array([found.get(id, 0.0) for id in places], np.float32) / np.float32(highest)

    def _restrict(self, condition: str, scope: Scope) -> str:
        return " and ".join(filter(None, [condition, self._vocabulary.write_expression(scope)]))

    def _fetch(self, ids: Sequence[str], fields: Sequence[str], scope: Scope = OWNER) -> list[dict[str, Any]]:
        starts = range(0, len(ids), FETCHED)
        asked = [self._restrict(list_ids(ids[start : start + FETCHED]), scope) for start in starts]
        return [row for condition in asked for row in self._query(condition, fields)]

    def _query(self, condition: str, fields: Sequence[str]) -> list[dict[str, Any]]:
        return [*self.collection.call("query", self.collection.name, condition, [*fields])]


def _choose_params(field: str, k: int) -> dict[str, Any]:
    return {"params": {"ef": max(EF, 2 * k)}} if field == "vector" else {}


def _make_plain(data: np.ndarray | Sequence[str]) -> list[Any]:
    return data.tolist() if isinstance(data, np.ndarray) else [*data]


def _read_hits(hits: Iterable[Mapping[str, Any]], read_score: Callable[[float], float] = float) -> SearchResult:
    return SearchResult(_read_passage(hit["id"], hit["entity"], read_score(hit["distance"])) for hit in hits)


def _read_passage(id: str, row: Mapping[str, Any], score: float = 0.0) -> Passage:
    return Passage(id, row.get("title", ""), row.get("text", ""), score=float(score))
