"""The corpora of retrieval-only evaluation: a question's own paragraphs, those of all questions pooled, an index.

`own` ranks the paragraphs that a set publishes beside a question (20 in MuSiQue, 10 in 2WikiMultiHopQA) with the
corpus statistics of the pool; a document is a paragraph. In `pooled` (all paragraphs of a set and its published
corpus) and in `index` (any index folder) a document is a page, known by its title, because most questions are published
with the titles of their gold paragraphs alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from data_gen.questions import AnnotatedQuestion, Evidence
from evaluation.metrics.retrieval import title_key
from evaluation.retrieval.recall import gold_titles
from revelator.files import sha256_file, sha256_text, write_bytes
from revelator.trace import Passage
from serving.retrieval import Index, IndexSettings, build_index
from serving.retrieval.corpora import read_corpus
from serving.retrieval.index import fuse_ranks
from serving.retrieval.index_folder import read_manifest

PAGES = 100  # passages searched for a ranking of pages: a page can have several


def paragraph(title: str, text: str) -> str:
    """The id of a paragraph: a digest of its title and its text, white space folded."""
    return sha256_text(f"{title}\0{' '.join(text.split())}")[:16]


class Corpus:
    """Documents that can be ranked for a question: `gold` names those that it needs, `rank` those that a query finds.

    It is what an executor takes as its retriever, too, once `of` has said for which question.
    """

    def __init__(self, name: str, index: Index) -> None:
        self.name = name
        self.index = index
        keys = [(p.id, title_key(p.title)) for p in map(index.passages.__getitem__, range(len(index)))]
        self.places = {id: place for place, (id, _) in enumerate(keys)}
        self.titles = frozenset(title for _, title in keys)

    def gold(self, question: AnnotatedQuestion) -> list[str]:
        """Names of the gold documents; none where one of them is not in this corpus, or not known."""
        if self.name == "own":
            return [paragraph(p.title, p.text) for p in question.passages if p.relevant]
        wanted = list(dict.fromkeys(title_key(title) for title in gold_titles(question)))
        return wanted if all(title in self.titles for title in wanted) else []

    def rank(self, question: AnnotatedQuestion, query: str, depth: int) -> list[str]:
        if self.name == "own":
            return [passage.id for passage in self.of(question)(query, depth)]
        pages = (title_key(passage.title) for passage in self.index.search(query, PAGES))
        return list(dict.fromkeys(pages))[:depth]

    def of(self, question: AnnotatedQuestion) -> Callable[[str, int], list[Passage]]:
        """The search of this corpus for one question."""
        if self.name != "own":
            return self.index.search
        places = np.array([self.places[paragraph(p.title, p.text)] for p in question.passages])
        return lambda query, k: ranked_among(self.index, query, places)[:k]


class Searching:
    """`serving.protocols.Retriever` over a search in this process."""

    def __init__(self, search: Callable[[str, int], list[Passage]]) -> None:
        self._search = search

    async def search(self, query: str, k: int) -> list[Passage]:
        return self._search(query, k)


def ranked_among(index: Index, query: str, places: np.ndarray) -> list[Passage]:
    """The passages at `places`, best first, all of them: by BM25, by vectors, or by both joined by their ranks."""
    scores = []
    if index.bm25 is not None:
        scores.append(index.bm25.scores(query)[places])
    if index.vectors is not None:
        scores.append(index.vectors.matrix[places] @ index.encoder.queries([query])[0])
    orders = [np.argsort(-values, kind="stable") for values in scores]
    joined, order = fuse_ranks(orders) if len(orders) > 1 else (scores[0][orders[0]], orders[0])
    return [replace(index.passages[int(places[i])], score=float(s)) for s, i in zip(joined, order, strict=True)]


def pool(questions: Sequence[AnnotatedQuestion], corpora: Iterable[Path], out: Path, settings: IndexSettings) -> Index:
    """The index of all paragraphs of `questions` and of `corpora`, each once, built below `out` unless it stands there
    as these would make it."""
    texts: dict[str, Evidence | Passage] = {}
    beside: Iterable[Evidence | Passage] = (p for question in questions for p in question.passages)
    for found in chain(beside, _rows(corpora)):
        texts.setdefault(paragraph(found.title, found.text), found)
    lines = [json.dumps({"id": key, "title": p.title, "text": p.text}, ensure_ascii=False) for key, p in texts.items()]
    passages = out / "passages.jsonl"
    write_bytes(passages, ("\n".join(lines) + "\n").encode())
    if not _is_built(out / "index", passages, settings):
        build_index([passages], out / "index", settings)
    return Index.open(out / "index")


def _rows(corpora: Iterable[Path]) -> Iterable[Passage]:
    for path in corpora:
        yield from (passage for _, passage in read_corpus(path))


def _is_built(folder: Path, passages: Path, settings: IndexSettings) -> bool:
    if not (folder / "manifest.json").is_file():
        return False
    manifest = read_manifest(folder)
    built = manifest["corpora"][0]["sha256"] == sha256_file(passages)
    return built and manifest["settings"] == {**manifest["settings"], **vars(settings)}
