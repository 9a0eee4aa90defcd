"""An index folder that is open: search by BM25, vectors or both.

A hybrid search joins its two rankings by reciprocal rank fusion (Cormack, Clarke and Büttcher 2009).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from revelator.errors import ArtifactError, ConfigError, InvalidRequest, Unavailable
from revelator.folders import MANIFEST, digest_manifest
from revelator.trace import Passage
from serving.protocols import PUBLIC, PassagePlace, Scope, SearchResult
from serving.retrieval.bm25 import BM25Scores
from serving.retrieval.columns import Columns
from serving.retrieval.dense import Vectors, compute_products, find_best
from serving.retrieval.embedders import Embedder, is_made_by, open_embedder
from serving.retrieval.fusion import fuse_ranks
from serving.retrieval.index_folder import INDEX, PassageStore, read_settings

DEPTH = 100  # of each ranking that a hybrid search joins
NAMED = 50  # documents of an index that its description names
Stamp = tuple[int, ...] | None


def read_stamp(folder: Path) -> Stamp:
    """What differs as soon as another index stands in the folder, from its manifest's entry in the file system; None
    where there is none."""
    try:
        found = (folder / MANIFEST).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


MAPPED = (".npy", ".jsonl", ".faiss")  # files that stay open, page by page, also when others have taken their names


class Index:
    """One generation of an index folder, memory-mapped. Safe to share between threads.

    All its files are open: it stays as it is when another takes its place, and when its files are removed. `manifest`
    and `settings` say how it was built, `bm25` and `vectors` are its parts (None where it has none), `columns` the
    fields of its passages. Whatever a search gives is of its scope.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], stamp: Stamp, cards: Sequence[int] = ()) -> None:
        self.folder = folder
        self.manifest = manifest
        self.stamp = stamp
        self.cards = cards
        self.settings = read_settings(manifest)
        self.passages = PassageStore(folder)
        self.columns = Columns(folder, len(self.passages))
        self.bm25 = BM25Scores(folder) if self.settings.sparse else None
        self.vectors = Vectors(folder, cards) if self.settings.dense else None
        self._state = digest_manifest(manifest)
        opened = [path.open("rb") for path in folder.iterdir() if path.suffix in MAPPED]
        self._files = [(file, os.fstat(file.fileno())) for file in opened]

    @classmethod
    def open(cls, folder: Path, cards: Sequence[int] = (), *, verify: bool = False) -> Index:
        """Opens a folder that `build_index` made, its vectors on the `cards` that are named. ArtifactError names
        the file that is missing or has another size, or with `verify` another digest. If another index takes its place
        meanwhile, that one is opened."""
        while True:
            stamp = read_stamp(folder)
            try:
                index = cls(folder, INDEX.read_manifest(folder, verify=verify), stamp, cards)
            except (ArtifactError, OSError, ValueError, KeyError, RuntimeError) as error:  # FAISS raises RuntimeError
                if read_stamp(folder) != stamp:
                    continue
                if isinstance(error, ArtifactError):
                    raise
                hint = f"see which file is damaged: revelator index info {folder}"
                raise ArtifactError(f"cannot be read: {error}", where=str(folder), hint=hint) from error
            if read_stamp(folder) == stamp:
                return index

    def reopen(self) -> Index:
        """Opens what stands in the folder by now, every file compared with its digest, with the model that is open
        already where it made those vectors, too. Raises what `open` and `encoder` raise."""
        index = Index.open(self.folder, self.cards, verify=True)
        if index.vectors is not None:
            is_same = index.settings == self.settings and is_made_by(index.manifest, self.encoder)
            index.encoder = self.encoder if is_same else index.encoder
        return index

    @property
    def where(self) -> str:
        """Where it stands, as people are told."""
        return str(self.folder)

    def read_stamp(self) -> Stamp:
        """What differs from `stamp` as soon as another generation may stand there; found without waiting."""
        return read_stamp(self.folder)

    @property
    def version(self) -> int:
        """The number of this generation: one more with each change of the folder."""
        return int(self.manifest["version"])

    def __len__(self) -> int:
        return len(self.passages)

    @cached_property
    def encoder(self) -> Embedder:
        """The model that made the vectors; ArtifactError if the one of that name is another one by now."""
        encoder = open_embedder(self.settings)
        if not is_made_by(self.manifest, encoder):
            raise ArtifactError(
                f"the model {encoder.name!r} is not the one that this index was built with",
                where=str(self.folder),
                hint="build the index again, or give the model its former files",
            )
        return encoder

    def require_whole(self) -> None:
        """Raises Unavailable if a file was written since it was opened: it may say something else by now, and to read
        beyond its new end would end the process (SIGBUS). One that another file took the place of stays as it was."""
        for file, opened in self._files:
            now = os.fstat(file.fileno())
            if (now.st_size, now.st_mtime_ns) != (opened.st_size, opened.st_mtime_ns):
                hint = "build the index anew: a service then takes it up by itself; others must open it again"
                raise Unavailable("the index was written over while it was open", hint=hint, final=True)

    def find_state(self) -> str | None:
        """A digest of what the index holds; None for one that was written over."""
        try:
            self.require_whole()
        except Unavailable:
            return None
        return self._state

    def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        """At most `k` passages, best first; equal scores in the corpus's order.

        BM25 gives passages that share a term with the query, dense the nearest by cosine, hybrid the two joined.
        """
        return self.search_many([query], k, scope)[0]

    def search_many(self, queries: Sequence[str], k: int, scope: Scope = PUBLIC) -> list[SearchResult]:
        """`search` for each query: BM25 takes them one by one; for vectors, all are embedded in one batch and compared
        in one call. Raises Unavailable for an index that was written over."""
        if k < 1:
            raise InvalidRequest(f"k must be 1 or more, not {k}")
        self.require_whole()
        view = self.columns.open_view(scope)
        respelled = [self.bm25.respell(query, view.readable) if self.bm25 else {} for query in queries]
        words = [" ".join([query, *chain(*near.values())]) for query, near in zip(queries, respelled, strict=True)]
        ranked = zip(self._rank(queries, words, k, view.found), respelled, strict=True)
        return [SearchResult(self.read_passages(scores, places), near) for (scores, places), near in ranked]

    def find_candidates(
        self, terms: Sequence[str], vectors: np.ndarray | None, sparse: bool, depth: int, scope: Scope = PUBLIC
    ) -> np.ndarray | None:
        """The positions, in order, of the `depth` best passages of the scope for one of the terms: by its vector, and
        with `sparse` by BM25; or of all passages of the scope. None where all passages are compared. Raises Unavailable
        for an index that was written over."""
        self.require_whole()
        among = self.columns.open_view(scope).found
        if vectors is None or self.vectors is None or self.vectors.is_exact or (among is not None and not among.any()):
            return None if among is None else np.flatnonzero(among)
        near = self.vectors.search(vectors, depth, among)[1]
        found = [near[near >= 0]]
        if sparse and self.bm25:
            found += [self._rank_sparse(term, depth, among)[1] for term in terms]
        return np.unique(np.concatenate(found))

    def score_terms(
        self,
        terms: Sequence[str],
        vectors: np.ndarray | None,
        sparse: bool,
        places: np.ndarray | None,
        scope: Scope = PUBLIC,
    ) -> list[np.ndarray]:
        """The score of each term for the passages at `places`, or for all: its vector's cosine, with `sparse` BM25 over
        the term's best score in the scope, or with both their mean."""
        cosines: np.ndarray | None = None
        if vectors is not None:
            matrix = self.require_vectors().matrix
            cosines = compute_products(matrix if places is None else matrix[places], vectors)
            if not sparse:
                return list(cosines)
        found = []
        for number, term in enumerate(terms):
            own = self.score_words(term, scope)
            own = own if places is None else own[places]
            found.append(own if cosines is None else (cosines[number] + own) / 2)
        return found

    def score_words(self, term: str, scope: Scope = PUBLIC) -> np.ndarray:
        """BM25 of a term's words over the term's best score in the scope, in [0, 1], for every passage; 0 outside."""
        if self.bm25 is None:
            raise ConfigError("this index holds no BM25 scores", where=self.where, hint="build it with --kind hybrid")
        scores, among = self.bm25.score(term), self.columns.open_view(scope).found
        scores = scores if among is None else np.where(among, scores, 0)
        return scores / max(float(scores.max(initial=0)), 1e-9)

    def require_vectors(self) -> Vectors:
        if self.vectors is None:
            raise ConfigError("this index holds no vectors", where=self.where, hint="build it with --kind dense")
        return self.vectors

    def find_places(self, ids: Collection[str]) -> dict[str, Any]:
        """The position of each passage, of those that the index holds: one reading of the store."""
        found = ((self.passages[place].id, place) for place in range(len(self)))
        return {id: place for id, place in found if id in ids}

    def count_found(self, scope: Scope = PUBLIC) -> int:
        """How many passages the scope has."""
        among = self.columns.open_view(scope).found
        return len(self) if among is None else int(np.count_nonzero(among))

    def require_fields(self, scope: Scope) -> None:
        """Raises InvalidRequest for a filter that names a field or a kind of value that the caller's documents lack."""
        self.columns.require_fields(scope)

    def read_passages(self, scores: np.ndarray, places: np.ndarray, scope: Scope = PUBLIC) -> list[Passage]:
        """The passages at `places`, which are of the scope, with their scores."""
        return [replace(self.passages[int(i)], score=float(s)) for s, i in zip(scores, places, strict=True)]

    def describe(self, scope: Scope = PUBLIC) -> dict[str, Any]:
        """What it holds that the groups of the scope may read: the names of the first `NAMED` documents, and the kinds
        of values by field."""
        readable, names, first, count = self.columns.find_readable(scope.groups), [], 0, 0
        for corpus in self.manifest["corpora"]:
            own = slice(first, first := first + corpus["passages"])
            shown = corpus["passages"] if readable is None else int(readable[own].sum())
            count += shown
            names += [corpus["name"]] if shown else []
        return {
            "kind": self.settings.kind,
            "model": self.settings.model,
            "version": self.manifest["version"],
            "passages": count,
            "documents": len(names),
            "first_documents": names[:NAMED],
            "fields": self.columns.list_fields(scope.groups),
        }

    def open_passage(self, id: str, scope: Scope = PUBLIC) -> PassagePlace | None:
        """The passage of an id with its neighbours in the same file; None for an id that no passage has that the groups
        of the scope may read. Raises Unavailable for an index that was written over."""
        self.require_whole()
        readable = self.columns.find_readable(scope.groups)

        def read(at: int) -> Passage | None:
            is_there = 0 <= at < len(self) and (readable is None or readable[at])
            return self.passages[at] if is_there else None

        place = self.passages.find(id)
        passage = None if place is None else read(place)
        if place is None or passage is None:
            return None
        beside = [read(at) for at in (place - 1, place + 1)]
        before, after = (one if one and one.file and one.file == passage.file else None for one in beside)
        return PassagePlace(passage, before, after)

    def _rank(
        self, queries: Sequence[str], words: Sequence[str], k: int, among: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Scores and positions for each query, best first, `among` the passages of a mask; `words` are what BM25
        searches for each."""
        if self.vectors is None:
            for query in words:
                yield self._rank_sparse(query, k, among)
            return
        depth = k if self.bm25 is None else max(k, DEPTH)
        near = self.vectors.search(self.encoder.encode_queries(queries), depth, among)
        for query, cosines, places in zip(words, *near, strict=True):
            found = places >= 0
            if self.bm25 is None:
                yield cosines[found], places[found]
            else:
                scores, joined = fuse_ranks([self._rank_sparse(query, depth, among)[1], places[found]])
                yield scores[:k], joined[:k]

    def _rank_sparse(self, query: str, k: int, among: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        assert self.bm25 is not None
        scores = self.bm25.score(query)
        scores = scores if among is None else np.where(among, scores, 0)
        places = find_best(scores, k)
        places = places[scores[places] > 0]
        return scores[places], places
