"""The best documents of a logical query over all vectors, without composing, or even scoring, every term for each.

A document whose cosines with all terms that are asked for lie below a limit cannot reach the k-th best score so far,
even if nothing that is excluded is there. One comparison a product leaves most documents out, and the limit rises on
the way. Where one or two of the terms decide (`"a" AND ...`), only they are multiplied with all documents; where
several are asked for together (`"a" AND "b" AND "c"`), only their sum is: none of them can be near if the sum is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from revelator.language.logic import And, Not, Or, Query, Term, literals, normal_form
from serving.retrieval.logical import Operators, compose
from serving.retrieval.products import Top, blocks, products

GRID = np.linspace(-1, 1, 2001)  # cosines for which the highest score is tabulated
COARSE = np.linspace(-1, 1, 201)  # those of which sums are
SAMPLE = 2048  # documents, evenly spread, that give the first limit and say which terms decide
WORTH = 0.05  # of them at most may be left: reading rows here and there costs more than in order, but the limit rises
DECIDING = 3  # terms at most that decide, if not all do
WAITING = 4096  # documents left in that are composed together

Score = Callable[[str, np.ndarray], np.ndarray]  # term, cosines → scores in [0, 1], rising with the cosine


@dataclass(frozen=True)
class Bound:
    """A document whose cosines with `terms`, or whose sum of them if `summed`, are all below `grid[i]` scores at most
    `highest[i]`."""

    terms: list[int]  # as places
    grid: np.ndarray
    highest: np.ndarray  # never falling
    summed: bool = False

    def compared(self, rows: np.ndarray) -> np.ndarray:
        """What is compared, of vectors or cosines by term: (terms, n) to (products, n)."""
        return rows[self.terms].sum(0, keepdims=True) if self.summed else rows[self.terms]

    def limit(self, reached: float) -> float:
        """The highest value of the grid that does not lead to the score `reached`, a hair less for what rounding may
        take; -inf where all lead there."""
        place = int(np.searchsorted(self.highest, reached - 1e-5 * abs(reached)))
        return float(self.grid[place - 1]) if place else -np.inf

    def left(self, cosines: np.ndarray, reached: float) -> float:
        """The share of documents, with these cosines, (terms, documents), that may have a score of `reached`."""
        return float((self.compared(cosines) >= self.limit(reached)).any(0).mean())


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
    for bound in bounds(normal, names, sample, reached, score, operators):  # of those that leave too many, the last
        if bound.left(sample, reached) <= WORTH:
            break
    multiplied = [] if bound.summed else bound.terms
    others = [place for place in range(len(names)) if place not in multiplied]
    top, limit = Top(k), bound.limit(reached)
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


def bounds(
    normal: Query, names: Sequence[str], sample: np.ndarray, reached: float, score: Score, operators: Operators
) -> Iterator[Bound]:
    """From one product a document to one for each term: by the term that leaves fewest of the sample, by a sum, by that
    term with a second and a third, by all."""
    values: dict[str, np.ndarray] = {}
    for place, name in enumerate(names):
        values[f"limited {place}"] = score(name, GRID)
        values[f"any {place}"], values[f"absent {place}"] = score(name, np.ones(1)), score(name, -np.ones(1))
    away = {name: f"absent {place}" for place, name in enumerate(names)}

    def highest(query: Query, limited: Sequence[int] = ()) -> np.ndarray:
        """The highest score of a document in which no limited term has a cosine above that of the grid."""
        known = {name: f"{'limited' if place in limited else 'any'} {place}" for place, name in enumerate(names)}
        return compose(_renamed(query, known, away), values, operators)

    def by(terms: list[int]) -> Bound:
        return Bound(terms, GRID, np.broadcast_to(highest(normal, terms), GRID.shape))

    asked = {text for text, negated in literals(normal) if not negated}
    positive = [place for place, name in enumerate(names) if name in asked]
    chosen: list[int] = []
    while len(chosen) < min(DECIDING, len(positive), len(names) - 1):
        ways = [by([*chosen, place]) for place in positive if place not in chosen]
        fewest = min(ways, key=lambda way: way.left(sample, reached))
        yield fewest
        if not chosen and isinstance(normal, And):
            yield from _summed(normal, names, highest, score, operators)
        chosen = fewest.terms
    yield by(list(range(len(names))))


def _summed(
    normal: And,
    names: Sequence[str],
    highest: Callable[[Query], np.ndarray],
    score: Score,
    operators: Operators,
) -> Iterator[Bound]:
    """By the sum of up to `DECIDING` terms that a conjunction asks for, if there are two, all else at its best. Cosines
    count as the next ones of the coarse grid."""
    parts = list(normal.operands)
    terms = list(dict.fromkeys(part for part in parts if isinstance(part, Term)))[:DECIDING]
    if len(terms) < 2:
        return
    for term in terms:
        parts.remove(term)

    def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return compose(And((Term("left"), Term("right"))), {"left": left, "right": right}, operators)

    table = score(terms[0].text, COARSE)
    for term in terms[1:]:
        table = _by_sum(both(table[:, None], score(term.text, COARSE)))
    for part in parts:
        table = both(table, highest(part))
    grid = (np.arange(len(table)) - len(terms)) * (COARSE[1] - COARSE[0]) - len(terms)
    yield Bound([names.index(term.text) for term in terms], grid, table, summed=True)


def _by_sum(values: np.ndarray) -> np.ndarray:
    """The highest of `values[i, j]` for each i + j."""
    rows, columns = values.shape
    wide = np.full((rows, columns + rows), -np.inf)
    wide[:, :columns] = values
    return wide.reshape(-1)[:-rows].reshape(rows, -1).max(0)  # row i is now i places to the right


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
