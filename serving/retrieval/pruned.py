"""The exact best documents of a logical query without scoring every term for every document.

Some terms are scored for all documents. With the others at their most favourable, that bounds what a document can
reach; those whose bound is below the k-th best score found among the most promising cannot be in the answer. Only the
rest are scored in all terms. One term is enough where it must hold (`"a" AND …`), two where they outweigh the third;
where each counts alone (`"a" OR "b" OR "c"`) nothing is gained, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from revelator.language.logic import And, Not, Or, Query, Term, normal_form, terms
from serving.retrieval.logical import Operators, best, compose

PROMISING = 20  # documents scored for each that is wanted, to find a bound
SAMPLE = 1024  # documents, evenly spread, on which it is guessed how many would be left
WORTH = 0.05  # of them at most, or all terms are scored for all: reading rows here and there costs more than in order
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
    normal, names, k = normal_form(query), list(terms(query)), min(k, count)

    def scored(places: np.ndarray) -> dict[str, np.ndarray]:
        return {name: score(name, row) for name, row in zip(names, cosines(names, places), strict=True)}

    sample = scored(np.linspace(0, count - 1, min(count, SAMPLE), dtype=np.int64))
    reached = np.sort(compose(normal, sample, operators))
    if len(reached) < k:
        return None

    def ceiling(known: Mapping[str, np.ndarray]) -> np.ndarray:
        return _ceiling(normal, known, names, score, operators)

    telling = _telling(sample, lambda known: float((ceiling(known) >= reached[-1]).mean()))
    if telling is None:
        return None
    known = {name: score(name, row) for name, row in zip(telling, cosines(telling, None), strict=True)}
    highest = ceiling(known)
    left = _above(highest, reached[-k])
    promising = np.sort(left[best(highest[left], PROMISING * k)])
    left = left[_above(highest[left], np.sort(compose(normal, scored(promising), operators))[-k])]
    total = compose(normal, scored(left), operators)
    chosen = best(total, k)
    return total[chosen], left[chosen]


def _telling(
    sample: Mapping[str, np.ndarray], share_left: Callable[[dict[str, np.ndarray]], float]
) -> list[str] | None:
    """The terms, taken one by one, that leave few enough documents; None if that takes all of them."""
    known: dict[str, np.ndarray] = {}
    while len(known) < len(sample) - 1:
        shares = {name: share_left({**known, name: row}) for name, row in sample.items() if name not in known}
        term = min(shares, key=lambda name: shares[name])
        known[term] = sample[term]
        if shares[term] <= WORTH:
            return list(known)
    return None


def _above(ceiling: np.ndarray, bound: float) -> np.ndarray:
    """Where a ceiling reaches a score that `k` documents have; a hair less, for what rounding may take."""
    return np.flatnonzero(ceiling >= bound - 1e-5 * abs(bound))


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
