"""Judges the probabilities of labels: the calibration error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

BINS = 15  # as in Guo et al. 2017


def bin_by_confidence(confidence: ArrayLike, right: ArrayLike, bins: int = BINS) -> list[dict[str, float]]:
    """Sorts answers into bins of equal width, and returns those that hold an answer. A bin has the answers with a
    probability above `low` and up to `high`: their number `n`, mean `confidence` and `accuracy`. `confidence` and
    `right` have shape (n,)."""
    sure, truth = np.asarray(confidence, dtype=float), np.asarray(right, dtype=float)
    member = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for place in np.unique(member):
        inside = member == place
        ends = {"low": place / bins, "high": (place + 1) / bins, "n": int(inside.sum())}
        found.append(ends | {"confidence": float(sure[inside].mean()), "accuracy": float(truth[inside].mean())})
    return found


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = BINS) -> float:
    """Computes ECE (Guo et al. 2017, equation 3): the mean over answers of the gap between the confidence and the
    accuracy of their bin. nan without answers."""
    count = len(np.asarray(confidence))
    gaps = (b["n"] * abs(b["confidence"] - b["accuracy"]) for b in bin_by_confidence(confidence, right, bins))
    return sum(gaps) / count if count else float("nan")
