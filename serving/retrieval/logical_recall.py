"""How much of the exact ranking logical queries find in an index that scores only what a search for each of their terms
brings. A build measures it, and the manifest keeps it.

The queries are `A AND B`, `A OR B` and `A AND NOT B` in turn; a term is the title of a passage that is drawn. In the
exact ranking every passage is scored for every term: one reading of the vectors, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np

from revelator.plans.logic import And, Not, Or, Query, Term, list_terms
from serving.protocols import OWNER
from serving.retrieval.dense import find_best, iterate_products
from serving.retrieval.index import Index
from serving.retrieval.logical_search import compose, rank_logical
from serving.retrieval.neighbours import DEPTH

SAMPLED = 50  # queries
LONGEST = 200  # characters of a term
JOINS: tuple[Callable[[Term, Term], Query], ...] = (
    lambda a, b: And((a, b)),
    lambda a, b: Or((a, b)),
    lambda a, b: And((a, Not(b))),
)


def measure_logical_recall(index: Index) -> float:
    """The share of the best ten passages of the exact ranking, by cosines, that logical queries find; 1 where all
    passages are scored."""
    if index.require_vectors().is_exact or not (queries := draw_queries(index)):
        return 1.0
    ranked = rank_all(index, queries, DEPTH)
    found = [rank_logical(index, query, DEPTH, scope=OWNER)[1] for query in queries]
    shared = sum(len(np.intersect1d(ours, theirs)) for ours, theirs in zip(found, ranked, strict=True))
    return shared / max(1, sum(map(len, ranked)))


def draw_queries(index: Index) -> list[Query]:
    """Queries of terms that hold a word, drawn alike for like indexes. A passage without a title gives its text."""
    places = np.random.default_rng(len(index)).integers(0, len(index), 2 * SAMPLED)
    passages = [index.passages[int(place)] for place in places]
    texts = [(passage.title or passage.text)[:LONGEST] for passage in passages]
    terms = [Term(text) for text in texts if any(map(str.isalnum, text))]
    return [join(a, b) for join, a, b in zip(cycle(JOINS), terms[::2], terms[1::2], strict=False)]


def rank_all(index: Index, queries: Sequence[Query], k: int) -> list[np.ndarray]:
    """The positions of the `k` best passages for each query, best first, of all passages of the index, as
    `rank_logical` ranks them where all are scored."""
    terms = list(dict.fromkeys(term for query in queries for term in list_terms(query)))
    best = [(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries)
    for start, block in iterate_products(index.require_vectors().matrix, index.encoder.encode_queries(terms)):
        scores = dict(zip(terms, np.clip(block.T, 0, 1), strict=True))
        for number, query in enumerate(queries):
            total = np.concatenate([best[number][0], compose(query, scores)])
            places = np.concatenate([best[number][1], np.arange(start, start + len(block))])
            chosen = find_best(total, k)
            best[number] = total[chosen], places[chosen]
    return [places[total > 0] for total, places in best]
