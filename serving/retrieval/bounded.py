"""The best documents of a logical query over all vectors, without composing, or even scoring, every term for each.

A document whose cosines with all terms that are asked for lie below a limit cannot reach the k-th best score so far,
even if nothing that is excluded is there. One comparison a product leaves most documents out, and the limit rises on
the way. Where one or two of the terms decide (`"a" AND ...`), only they are multiplied with all documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from revelator.language.logic import And, Not, Or, Query, Term, literals, normal_form
from serving.retrieval.logical import Operators, compose
from serving.retrieval.products import Top, blocks, products

GRID = np.linspace(-1, 1, 2001)  # cosines for which the highest score is tabulated
SAMPLE = 2048  # documents, evenly spread, that give the first limit and say which terms decide
WORTH = 0.02  # of them at most may be left: reading rows here and there costs more than in order
DECIDING = 3  # terms at most that decide, if not all do
WAITING = 4096  # documents left in that are composed together

Score = Callable[[str, np.ndarray], np.ndarray]  # term, cosines → scores in [0, 1], rising with the cosine


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
    reached = found.least  # at the least, at the end
    deciding, ceiling = _deciding(normal, names, sample, reached, score, operators)
    others = [place for place in range(len(names)) if place not in deciding]
    top, limit = Top(k), _limit(ceiling, reached)
    known: list[np.ndarray] = []  # cosines of the deciding terms
    places: list[np.ndarray] = []

    def settle() -> float:
        among = np.concatenate(places)
        first = np.diff(among, prepend=-1) > 0  # where two terms reach the limit the document is there twice
        cosines = np.empty((len(names), first.sum()), np.float32)
        cosines[deciding] = np.concatenate(known)[first].T
        if others:
            cosines[others] = products(matrix, terms[others], among[first])
        top.add(composed(cosines), among[first])
        known.clear()
        places.clear()
        return _limit(ceiling, max(top.least, reached))

    for start, block in blocks(matrix, terms[deciding]):
        rows = np.flatnonzero(block.reshape(-1) >= limit) // len(deciding)
        known.append(block[rows])
        places.append(start + rows)
        if sum(map(len, places)) >= WAITING:
            limit = settle()
    if places:
        settle()
    return top.scores, top.places


def _deciding(
    normal: Query, names: Sequence[str], sample: np.ndarray, reached: float, score: Score, operators: Operators
) -> tuple[list[int], np.ndarray]:
    """Terms, as places in `names`, whose limit leaves few documents of the sample, taken one by one; all terms if few
    of them leave too many. With the ceiling that they give."""
    values: dict[str, np.ndarray] = {}
    for place, name in enumerate(names):
        values[f"limited {place}"] = score(name, GRID)
        values[f"any {place}"], values[f"absent {place}"] = score(name, np.ones(1)), score(name, -np.ones(1))

    def ceiling(deciding: Sequence[int]) -> np.ndarray:
        """The highest score of a document in which no deciding term has a cosine above that of the grid."""
        known = {name: f"{'limited' if place in deciding else 'any'} {place}" for place, name in enumerate(names)}
        away = {name: f"absent {place}" for place, name in enumerate(names)}
        return np.broadcast_to(compose(_renamed(normal, known, away), values, operators), GRID.shape)

    asked = {text for text, negated in literals(normal) if not negated}
    positive = [place for place, name in enumerate(names) if name in asked]
    chosen: list[int] = []
    while len(chosen) < min(DECIDING, len(positive), len(names) - 1):
        ways = [[*chosen, place] for place in positive if place not in chosen]
        ceilings = [ceiling(way) for way in ways]
        left = [
            float((sample[way] >= _limit(highest, reached)).any(0).mean())
            for way, highest in zip(ways, ceilings, strict=True)
        ]
        fewest = int(np.argmin(left))
        chosen = ways[fewest]
        if left[fewest] <= WORTH:
            return chosen, ceilings[fewest]
    return list(range(len(names))), ceiling(range(len(names)))


def _limit(ceiling: np.ndarray, reached: float) -> float:
    """The highest cosine of the grid that does not lead to the score `reached`, a hair less for what rounding may
    take; -inf where all lead there."""
    place = int(np.searchsorted(ceiling, reached - 1e-5 * abs(reached)))
    return float(GRID[place - 1]) if place else -np.inf


def _renamed(query: Query, plain: Mapping[str, str], negated: Mapping[str, str]) -> Query:
    """The query with a name for a term where it is asked for, and another where it is excluded: there its lowest score
    is its best."""
    if isinstance(query, Term):
        return Term(plain[query.text])
    if isinstance(query, Not):
        assert isinstance(query.operand, Term)
        return Not(Term(negated[query.operand.text]))
    kind = And if isinstance(query, And) else Or
    return kind(tuple(_renamed(operand, plain, negated) for operand in query.operands))
