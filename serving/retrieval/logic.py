"""Logical retrieval (ITLR, Faltings, Wei and Bao 2024): a query's operators compose its terms' scores; and the best
documents over all vectors, found without composing, or even scoring, every term for each.

NOT is carried down to the terms first (De Morgan): composed as it stands, 1 - (x + y) can be negative, and the product
of two such parts would rank highest what the query excludes. A score of a term is brought to [0, 1] before: cosines
below 0 are 0, BM25 is divided by the term's best score in the corpus, and a calibrated score is a probability.

A bound says what score a document can have at most, from its cosines with a few of the terms that are asked for. Where
one term is asked for with all else (`"a" AND ...`) its cosine says so alone; where several are (`"a" AND "b" AND "c"`)
their sum does: not all of them are near if the sum is small. A bound leaves most documents out by one comparison a
product, and its limit rises on the way. Only the terms that decide are multiplied with all documents, the others with
what is left. Where no bound leaves few, every document is composed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, get_args

import numpy as np

from revelator.errors import InvalidRequest
from revelator.plans.logic import And, Not, Or, Query, Term, list_literals, move_negations_inwards
from serving.retrieval.dense import Top, compute_products, iterate_products

Conjunction = Literal["product", "sum", "min"]
Disjunction = Literal["sum", "max"]
Negation = Literal["complement", "reciprocal"]
SMALLEST = 1e-3  # under 1/x, what a score of 0 counts as
_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "product": np.multiply,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
}
GRID = np.linspace(-1, 1, 2001)  # cosines for which the highest score is tabulated
COARSE = np.linspace(-1, 1, 201)  # those of which sums are
HIGHEST = 1 + 1e-5  # cosine, with what rounding may add
ROUNDING = 1e-5  # of a score, as a share, for each place where a term stands
DECIDING = 3  # terms at most that decide, if not all do
Score = Callable[[str, np.ndarray], np.ndarray]  # term, cosines → scores in [0, 1], rising with the cosine
SAMPLE = 2048  # documents, evenly spread, that give the first limit and say which terms decide
FEW = 0.05  # of them may be left: reading rows here and there costs more than in order, but the limit rises
MANY = 0.25  # if so many are, to compare costs more than to compose
WAITING = 4096  # documents left in that are composed together


@dataclass(frozen=True)
class Operators:
    """AND as x·y, x+y or min; OR as x+y or max; NOT as 1-x or 1/x. The default is the paper's."""

    conjunction: Conjunction = "product"
    disjunction: Disjunction = "sum"
    negation: Negation = "complement"

    def __post_init__(self) -> None:
        for name, allowed in (("conjunction", Conjunction), ("disjunction", Disjunction), ("negation", Negation)):
            if getattr(self, name) not in get_args(allowed):
                raise InvalidRequest(f"{name} is {', '.join(get_args(allowed))}, not {getattr(self, name)!r}")

    @property
    def both(self) -> Callable[..., np.ndarray]:
        """AND of two scores."""
        return _BINARY[self.conjunction]

    @property
    def either(self) -> Callable[..., np.ndarray]:
        """OR of two scores."""
        return _BINARY[self.disjunction]


DEFAULT = Operators()


def compose(query: Query, scores: Mapping[str, np.ndarray], operators: Operators = DEFAULT) -> np.ndarray:
    """One score a document, from the scores of each term in [0, 1]; arrays of one shape in, one of that shape out."""
    return _compose(move_negations_inwards(query), scores, operators)


def _compose(query: Query, scores: Mapping[str, np.ndarray], operators: Operators) -> np.ndarray:
    if isinstance(query, Term):
        return scores[query.text]
    if isinstance(query, Not):
        inner = _compose(query.operand, scores, operators)
        return 1 - inner if operators.negation == "complement" else 1 / np.maximum(inner, SMALLEST)
    join = operators.both if isinstance(query, And) else operators.either
    return reduce(join, (_compose(operand, scores, operators) for operand in query.operands))


@dataclass(frozen=True)
class Bound:
    """A document whose cosines with `terms`, or whose sum of them if `summed`, are all below `grid[i]` scores less than
    any score above `highest[i]`."""

    terms: list[int]  # as places
    grid: np.ndarray
    highest: np.ndarray  # never falling
    summed: bool = False

    def select_rows(self, rows: np.ndarray) -> np.ndarray:
        """The rows that are compared, of vectors or cosines by term: (terms, n) to (products, n)."""
        return rows[self.terms].sum(0, keepdims=True) if self.summed else rows[self.terms]

    def find_limit(self, reached: float) -> float:
        """What a document's products are all below only if its score is below `reached`; -inf where that says
        nothing."""
        place = int(np.searchsorted(self.highest, reached)) if np.isfinite(reached) else 0
        return float(self.grid[place - 1]) if place else -np.inf

    def measure_share(self, cosines: np.ndarray, reached: float) -> float:
        """Of documents with these cosines, (terms, documents), the share that it does not leave out."""
        return float((self.select_rows(cosines) >= self.find_limit(reached)).any(0).mean())


def find_bounds(
    query: Query, names: Sequence[str], sample: np.ndarray, reached: float, score: Score, operators: Operators
) -> Iterator[Bound]:
    """From one product a document to one for each term that is asked for: by the term that leaves fewest of the sample,
    by a sum, by that term with a second and a third, by all."""
    normal = move_negations_inwards(query)
    values: dict[str, np.ndarray] = {}
    for place, name in enumerate(names):
        values[f"limited {place}"] = score(name, GRID)
        values[f"any {place}"], values[f"absent {place}"] = score(name, np.full(1, HIGHEST)), score(name, -np.ones(1))
    away = {name: f"absent {place}" for place, name in enumerate(names)}

    def highest(part: Query, limited: Sequence[int] = ()) -> np.ndarray:
        """The highest score of a document in which no limited term has a cosine above that of the grid."""
        known = {name: f"{'limited' if place in limited else 'any'} {place}" for place, name in enumerate(names)}
        return compose(_rename_terms(part, known, away), values, operators)

    def bound_by(terms: list[int]) -> Bound:
        return Bound(terms, GRID, np.broadcast_to(_round_up(highest(normal, terms), normal), GRID.shape))

    asked = {text for text, negated in list_literals(normal) if not negated}
    positive = [place for place, name in enumerate(names) if name in asked]
    chosen: list[int] = []
    while len(chosen) < min(DECIDING, len(positive)):
        ways = [bound_by([*chosen, place]) for place in positive if place not in chosen]
        fewest = min(ways, key=lambda way: way.measure_share(sample, reached))
        yield fewest
        if not chosen and isinstance(normal, And):
            yield from _bound_by_sum(normal, names, highest, score, operators)
        chosen = fewest.terms
    if len(positive) > DECIDING:
        yield bound_by(positive)


def _bound_by_sum(
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
        table = _find_best_by_sum(operators.both(table[:, None], score(term.text, grid)))
    for part in parts:
        table = operators.both(table, highest(part))
    # sums begin at -n; each cosine counts as the next of the grid, by which the sum rises by less than n steps
    sums = -len(terms) + (np.arange(len(table)) - len(terms)) * (COARSE[1] - COARSE[0])
    yield Bound([names.index(term.text) for term in terms], sums, _round_up(table, conjunction), summed=True)


def _round_up(highest: np.ndarray, query: Query) -> np.ndarray:
    """The highest values that float32 may give these scores."""
    return highest * (1 + ROUNDING * len(list_literals(query)))


def _find_best_by_sum(values: np.ndarray) -> np.ndarray:
    """The highest of `values[i, j]` for each i + j."""
    rows, columns = values.shape
    wide = np.full((rows, columns + rows), -np.inf)
    wide[:, :columns] = values
    return wide.reshape(-1)[:-rows].reshape(rows, -1).max(0)  # row i is now i places to the right


def _rename_terms(query: Query, plain: Mapping[str, str], negated: Mapping[str, str]) -> Query:
    """The query with a name for a term where it is asked for, and another where it is excluded: there its lowest score
    is its best."""
    if isinstance(query, Term):
        return Term(plain[query.text])
    if isinstance(query, Not):
        assert isinstance(query.operand, Term)
        return Not(Term(negated[query.operand.text]))
    kind = And if isinstance(query, And) else Or
    return kind(tuple(_rename_terms(operand, plain, negated) for operand in query.operands))


def search_bounded(
    query: Query, k: int, matrix: np.ndarray, vectors: Mapping[str, np.ndarray], score: Score, operators: Operators
) -> tuple[np.ndarray, np.ndarray]:
    """(scores, positions) of the `k` best rows of `matrix`, (documents, dimensions), equal to composing all; `vectors`
    has that of each term, (dimensions,), of length 1 as the rows are."""
    normal, names = move_negations_inwards(query), list(vectors)
    terms = np.stack([vectors[name] for name in names])

    def composed(cosines: np.ndarray) -> np.ndarray:
        values = {name: score(name, row) for name, row in zip(names, cosines, strict=True)}
        return compose(normal, values, operators)

    spread = np.linspace(0, len(matrix) - 1, min(len(matrix), SAMPLE), dtype=np.int64)
    sample, found = compute_products(matrix, terms, spread), Top(k)
    found.add(composed(sample), spread)
    if len(spread) == len(matrix):
        return found.scores, found.places
    reached, top = found.least, Top(k)  # what is reached at the least, at the end
    bound = _choose_bound(normal, names, sample, reached, score, operators)
    if bound is None:
        for start, block in iterate_products(matrix, terms):
            top.add_block(composed(np.ascontiguousarray(block.T)), start)
        return top.scores, top.places

    multiplied = [] if bound.summed else bound.terms
    others = [place for place in range(len(names)) if place not in multiplied]
    limit = bound.find_limit(reached)
    known: list[np.ndarray] = []  # cosines of the terms that were multiplied
    places: list[np.ndarray] = []

    def flush() -> float:
        among = np.concatenate(places)
        first = np.diff(among, prepend=-1) > 0  # where two terms reach the limit the document is there twice
        cosines = np.empty((len(names), first.sum()), np.float32)
        cosines[multiplied] = np.concatenate(known)[first].T
        if others:
            cosines[others] = compute_products(matrix, terms[others], among[first])
        top.add(composed(cosines), among[first])
        known.clear()
        places.clear()
        return bound.find_limit(max(top.least, reached))

    for start, block in iterate_products(matrix, bound.select_rows(terms)):
        rows = np.flatnonzero(block.reshape(-1) >= limit) // block.shape[1]
        known.append(block[rows, : len(multiplied)])
        places.append(start + rows)
        if sum(map(len, places)) >= WAITING:
            limit = flush()
    if places:
        flush()
    return top.scores, top.places


def _choose_bound(
    normal: Query, names: Sequence[str], sample: np.ndarray, reached: float, score: Score, operators: Operators
) -> Bound | None:
    """The first that leaves few of the sample, or the one that leaves fewest; None if that leaves many."""
    tried: list[tuple[float, Bound | None]] = [(MANY, None)]
    for bound in find_bounds(normal, names, sample, reached, score, operators):
        share = bound.measure_share(sample, reached)
        if share <= FEW:
            return bound
        tried.append((share, bound))
    return min(tried, key=lambda way: way[0])[1]
