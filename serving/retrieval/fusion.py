"""Reciprocal rank fusion: several rankings as one (Cormack, Clarke and Büttcher 2009)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RRF_CONSTANT = 60


def fuse_ranks(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(scores, positions), best first, from rankings of positions: the sum of 1 / (RRF_CONSTANT + rank), rank from
    1."""
    places = np.concatenate(rankings)
    shares = np.concatenate([1 / (RRF_CONSTANT + np.arange(1, len(ranking) + 1)) for ranking in rankings])
    distinct, member = np.unique(places, return_inverse=True)
    scores = np.bincount(member, shares, len(distinct))
    order = np.argsort(-scores, kind="stable")
    return scores[order], distinct[order]
