"""Logical retrieval (ITLR, Faltings, Wei and Bao 2024): a query's operators compose its terms' scores.

NOT is carried down to the terms first (De Morgan): composed as it stands, 1 - (x + y) can be negative, and the product
of two such parts would rank highest what the query excludes. A score of a term is brought to [0, 1] before: cosines
below 0 are 0, BM25 is divided by the term's best score in the corpus, and a calibrated score is a probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np

from revelator.plans.logic import And, Not, Query, Term, move_negations_inwards

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


@dataclass(frozen=True)
class Operators:
    """AND as x·y, x+y or min; OR as x+y or max; NOT as 1-x or 1/x. The default is the paper's."""

    conjunction: Conjunction = "product"
    disjunction: Disjunction = "sum"
    negation: Negation = "complement"


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
    join = _BINARY[operators.conjunction if isinstance(query, And) else operators.disjunction]
    return reduce(join, (_compose(operand, scores, operators) for operand in query.operands))
