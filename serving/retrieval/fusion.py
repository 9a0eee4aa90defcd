"""Two rankings into one.

Reciprocal rank fusion: Cormack, Clarke and Büttcher 2009. Convex combination: Bruch, Gai and Ingber 2023, with their
theoretical minimum (BM25 0, cosine -1) in the normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RRF_CONSTANT = 60


def reciprocal_ranks(rankings: Sequence[np.ndarray], constant: int = RRF_CONSTANT) -> tuple[np.ndarray, np.ndarray]:
    """(scores, positions), best first, from rankings of positions: the sum of 1 / (constant + rank), rank from 1."""
    places = np.concatenate(rankings)
    shares = np.concatenate([1 / (constant + np.arange(1, len(ranking) + 1)) for ranking in rankings])
    distinct, member = np.unique(places, return_inverse=True)
    scores = np.bincount(member, shares, len(distinct))
    order = np.argsort(-scores, kind="stable")
    return scores[order], distinct[order]


def convex(scores: Sequence[np.ndarray], minima: Sequence[float], weights: Sequence[float]) -> np.ndarray:
    """The weighted sum of scores, each brought to [0, 1] by its least possible and its highest value, shape (n,)."""
    total = np.zeros(len(scores[0]))
    for values, low, weight in zip(scores, minima, weights, strict=True):
        span = float(values.max(initial=low)) - low
        if span > 0:
            total += weight * (values - low) / span
    return total


def standardised(scores: np.ndarray) -> np.ndarray:
    """In standard deviations from the mean; 0 where all are equal."""
    spread = float(scores.std())
    return (scores - scores.mean()) / spread if spread > 0 else np.zeros_like(scores)
