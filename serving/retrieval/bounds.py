"""What cosines with a few of a logical query's terms say of the score that a document can have at most.

A document whose cosines with the terms that are asked for lie below a limit cannot reach a score, even if nothing that
is excluded is there. Where one term is asked for with all else (`"a" AND ...`) its cosine says so alone; where several
are (`"a" AND "b" AND "c"`) their sum does: not all of them are near if the sum is small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from revelator.plans.logic import And, Not, Or, Query, Term, literals, normal_form
from serving.retrieval.logical import Operators, compose

GRID = np.linspace(-1, 1, 2001)  # cosines for which the highest score is tabulated
COARSE = np.linspace(-1, 1, 201)  # those of which sums are
HIGHEST = 1 + 1e-5  # cosine, with what rounding may add
ROUNDING = 1e-5  # of a score, as a share, for each place where a term stands
DECIDING = 3  # terms at most that decide, if not all do

Score = Callable[[str, np.ndarray], np.ndarray]  # term, cosines → scores in [0, 1], rising with the cosine


@dataclass(frozen=True)
class Bound:
    """A document whose cosines with `terms`, or whose sum of them if `summed`, are all below `grid[i]` scores less than
    any score above `highest[i]`."""

    terms: list[int]  # as places
    grid: np.ndarray
    highest: np.ndarray  # never falling
    summed: bool = False

    def compared(self, rows: np.ndarray) -> np.ndarray:
        """What is compared, of vectors or cosines by term: (terms, n) to (products, n)."""
        return rows[self.terms].sum(0, keepdims=True) if self.summed else rows[self.terms]

    def limit(self, reached: float) -> float:
        """What a document's products are all below only if its score is below `reached`; -inf where that says
        nothing."""
        place = int(np.searchsorted(self.highest, reached)) if np.isfinite(reached) else 0
        return float(self.grid[place - 1]) if place else -np.inf

    def share(self, cosines: np.ndarray, reached: float) -> float:
        """Of documents with these cosines, (terms, documents), the share that it does not leave out."""
        return float((self.compared(cosines) >= self.limit(reached)).any(0).mean())


def bounds(
    query: Query, names: Sequence[str], sample: np.ndarray, reached: float, score: Score, operators: Operators
) -> Iterator[Bound]:
    """From one product a document to one for each term that is asked for: by the term that leaves fewest of the sample,
    by a sum, by that term with a second and a third, by all."""
    normal = normal_form(query)
    values: dict[str, np.ndarray] = {}
    for place, name in enumerate(names):
        values[f"limited {place}"] = score(name, GRID)
        values[f"any {place}"], values[f"absent {place}"] = score(name, np.full(1, HIGHEST)), score(name, -np.ones(1))
    away = {name: f"absent {place}" for place, name in enumerate(names)}

    def highest(part: Query, limited: Sequence[int] = ()) -> np.ndarray:
        """The highest score of a document in which no limited term has a cosine above that of the grid."""
        known = {name: f"{'limited' if place in limited else 'any'} {place}" for place, name in enumerate(names)}
        return compose(_renamed(part, known, away), values, operators)

    def by(terms: list[int]) -> Bound:
        return Bound(terms, GRID, np.broadcast_to(_rounded(highest(normal, terms), normal), GRID.shape))

    asked = {text for text, negated in literals(normal) if not negated}
    positive = [place for place, name in enumerate(names) if name in asked]
    chosen: list[int] = []
    while len(chosen) < min(DECIDING, len(positive)):
        ways = [by([*chosen, place]) for place in positive if place not in chosen]
        fewest = min(ways, key=lambda way: way.share(sample, reached))
        yield fewest
        if not chosen and isinstance(normal, And):
            yield from _by_sum(normal, names, highest, score, operators)
        chosen = fewest.terms
    if len(positive) > DECIDING:
        yield by(positive)


def _by_sum(
    conjunction: And,
    names: Sequence[str],
    highest: Callable[[Query], np.ndarray],
    score: Score,
    operators: Operators,
) -> Iterator[Bound]:
    """By the sum of the first `DECIDING` terms that a conjunction asks for, if there are two, all else at its best."""
    parts = list(conjunction.operands)
    terms = list(dict.fromkeys(part for part in parts if isinstance(part, Term)))[:DECIDING]
    if len(terms) < 2:
        return
    for term in terms:
        parts.remove(term)
    grid = np.append(COARSE[:-1], HIGHEST)
    table = score(terms[0].text, grid)
    for term in terms[1:]:
        table = _best_by_sum(operators.both(table[:, None], score(term.text, grid)))
    for part in parts:
        table = operators.both(table, highest(part))
    # sums begin at -n; each cosine counts as the next of the grid, by which the sum rises by less than n steps
    sums = -len(terms) + (np.arange(len(table)) - len(terms)) * (COARSE[1] - COARSE[0])
    yield Bound([names.index(term.text) for term in terms], sums, _rounded(table, conjunction), summed=True)


def _rounded(highest: np.ndarray, query: Query) -> np.ndarray:
    """What float32 may make of these scores at most."""
    return highest * (1 + ROUNDING * len(literals(query)))


def _best_by_sum(values: np.ndarray) -> np.ndarray:
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
