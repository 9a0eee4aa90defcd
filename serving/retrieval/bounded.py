"""The best documents of a logical query over all vectors, without composing, or even scoring, every term for each.

A bound (`serving.retrieval.bounds`) leaves most documents out by one comparison a product, and its limit rises on the
way. Only the terms that decide are multiplied with all documents, or their sum, the others with what is left. Where no
bound leaves few, every document is composed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from revelator.plans.logic import Query, normal_form
from serving.retrieval.bounds import Bound, Score, bounds
from serving.retrieval.logical import Operators, compose
from serving.retrieval.products import Top, blocks, products

SAMPLE = 2048  # documents, evenly spread, that give the first limit and say which terms decide
FEW = 0.05  # of them may be left: reading rows here and there costs more than in order, but the limit rises
MANY = 0.25  # if so many are, to compare costs more than to compose
WAITING = 4096  # documents left in that are composed together


def search_bounded(
    query: Query, k: int, matrix: np.ndarray, vectors: Mapping[str, np.ndarray], score: Score, operators: Operators
) -> tuple[np.ndarray, np.ndarray]:
    """(scores, positions) of the `k` best rows of `matrix`, (documents, dimensions), equal to composing all; `vectors`
    has that of each term, (dimensions,), of length 1 as the rows are."""
    normal, names = normal_form(query), list(vectors)
    terms = np.stack([vectors[name] for name in names])

    def composed(cosines: np.ndarray) -> np.ndarray:
        values = {name: score(name, row) for name, row in zip(names, cosines, strict=True)}
        return compose(normal, values, operators)

    spread = np.linspace(0, len(matrix) - 1, min(len(matrix), SAMPLE), dtype=np.int64)
    sample, found = products(matrix, terms, spread), Top(k)
    found.add(composed(sample), spread)
    if len(spread) == len(matrix):
        return found.scores, found.places
    reached, top = found.least, Top(k)  # what is reached at the least, at the end
    bound = _chosen(normal, names, sample, reached, score, operators)
    if bound is None:
        for start, block in blocks(matrix, terms):
            top.add_block(composed(np.ascontiguousarray(block.T)), start)
        return top.scores, top.places

    multiplied = [] if bound.summed else bound.terms
    others = [place for place in range(len(names)) if place not in multiplied]
    limit = bound.limit(reached)
    known: list[np.ndarray] = []  # cosines of the terms that were multiplied
    places: list[np.ndarray] = []

    def settle() -> float:
        among = np.concatenate(places)
        first = np.diff(among, prepend=-1) > 0  # where two terms reach the limit the document is there twice
        cosines = np.empty((len(names), first.sum()), np.float32)
        cosines[multiplied] = np.concatenate(known)[first].T
        if others:
            cosines[others] = products(matrix, terms[others], among[first])
        top.add(composed(cosines), among[first])
        known.clear()
        places.clear()
        return bound.limit(max(top.least, reached))

    for start, block in blocks(matrix, bound.compared(terms)):
        rows = np.flatnonzero(block.reshape(-1) >= limit) // block.shape[1]
        known.append(block[rows, : len(multiplied)])
        places.append(start + rows)
        if sum(map(len, places)) >= WAITING:
            limit = settle()
    if places:
        settle()
    return top.scores, top.places


def _chosen(
    normal: Query, names: Sequence[str], sample: np.ndarray, reached: float, score: Score, operators: Operators
) -> Bound | None:
    """The first that leaves few of the sample, or the one that leaves fewest; None if that leaves many."""
    tried: list[tuple[float, Bound | None]] = [(MANY, None)]
    for bound in bounds(normal, names, sample, reached, score, operators):
        share = bound.share(sample, reached)
        if share <= FEW:
            return bound
        tried.append((share, bound))
    return min(tried, key=lambda way: way[0])[1]
