"""The exact best documents of a logical query without scoring every term for every document.

One term is scored for all documents. With the other terms at their most favourable, that bounds what a document can
reach; those whose bound is below the k-th best score found among the most promising cannot be in the answer. Only the
rest are scored in all terms. It helps where some term must hold (`"a" AND …`), and is left out where none must (`"a"
OR …`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from revelator.language.logic import And, Not, Or, Query, Term, normal_form, terms
from serving.retrieval.logical import Operators, best, compose

PROMISING = 20  # documents scored for each that is wanted, to find a bound
SAMPLE = 4096  # documents, evenly spread, on which it is guessed how many would be left
WORTH = 0.05  # of them at most, or all terms are scored for all: reading rows here and there costs more than in order
NEEDED = 0.05  # a term must hold if without it a document reaches less than this share of what it can reach with it
_UNKNOWN = "\0"

Score = Callable[[str, np.ndarray], np.ndarray]  # term, cosines → scores in [0, 1], rising with the cosine


def pruned(
    query: Query,
    k: int,
    count: int,
    cosines: Callable[[list[str], np.ndarray | None], np.ndarray],
    score: Score,
    operators: Operators,
) -> tuple[np.ndarray, np.ndarray] | None:
    """(scores, positions) of the `k` best of `count` documents, equal to composing all; None where that is no gain.

    `cosines(terms, places)` gives shape (terms, documents), for all documents where `places` is None.
    """
    normal, names = normal_form(query), list(terms(query))
    term = _needed(normal, names, score, operators)
    if term is None:
        return None

    def ceiling_of(first: np.ndarray) -> np.ndarray:
        return _ceiling(normal, {term: score(term, first)}, names, score, operators)

    def scored(rows: np.ndarray) -> np.ndarray:
        return compose(normal, {name: score(name, row) for name, row in zip(names, rows, strict=True)}, operators)

    k = min(k, count)
    sample = np.linspace(0, count - 1, min(count, SAMPLE), dtype=np.int64)
    rows = cosines(names, sample)
    reached, reachable = scored(rows), ceiling_of(rows[names.index(term)])
    if len(reached) < k or (reachable >= reached.max()).mean() > WORTH:
        return None
    ceiling = ceiling_of(cosines([term], None)[0])
    left = _above(ceiling, np.sort(reached)[-k])
    promising = np.sort(left[best(ceiling[left], PROMISING * k)])
    left = left[_above(ceiling[left], np.sort(scored(cosines(names, promising)))[-k])]
    total = scored(cosines(names, left))
    chosen = best(total, k)
    return total[chosen], left[chosen]


def _above(ceiling: np.ndarray, bound: float) -> np.ndarray:
    """Where a ceiling reaches a score that `k` documents have; a hair less, for what rounding may take."""
    return np.flatnonzero(ceiling >= bound - 1e-5 * abs(bound))


def _needed(normal: Query, names: list[str], score: Score, operators: Operators) -> str | None:
    """The term whose absence costs a document most, if it costs it nearly everything."""

    def reach(name: str, cosine: float) -> float:
        known = {name: score(name, np.array([cosine]))}
        return float(np.max(_ceiling(normal, known, names, score, operators)))

    shares = {name: reach(name, 0.0) / max(reach(name, 1.0), 1e-12) for name in names}
    term = min(names, key=lambda name: shares[name])
    return term if shares[term] <= NEEDED else None


def _ceiling(
    normal: Query, known: Mapping[str, np.ndarray], names: list[str], score: Score, operators: Operators
) -> np.ndarray:
    """The highest score that the known terms leave open, of the shape of theirs."""
    values = dict(known)
    for name in names:
        if name not in known:
            values[name], values[_UNKNOWN + name] = (score(name, np.array([end])) for end in (1.0, -1.0))
    return compose(_apart(normal, known), values, operators)


def _apart(query: Query, known: Mapping[str, np.ndarray]) -> Query:
    """The query with another name for an unknown term where it is negated: there its lowest score is its best."""
    if isinstance(query, Term):
        return query
    if isinstance(query, Not):
        assert isinstance(query.operand, Term)
        return query if query.operand.text in known else Not(Term(_UNKNOWN + query.operand.text))
    kind = And if isinstance(query, And) else Or
    return kind(tuple(_apart(operand, known) for operand in query.operands))
