"""How labels are judged by their probabilities: the calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

BINS = 15  # as in Guo et al. 2017


@dataclass(frozen=True)
class Bin:
    """Answers given with a probability above `low` and up to `high`: how many, how sure, how often right."""

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


def reliability(confidence: ArrayLike, right: ArrayLike, bins: int = BINS) -> list[Bin]:
    """The bins that hold an answer, of equal width. `confidence` and `right` have shape (n,)."""
    sure, truth = np.asarray(confidence, dtype=float), np.asarray(right, dtype=float)
    member = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    found = []
    for place in np.unique(member):
        inside = member == place
        mean, share = float(sure[inside].mean()), float(truth[inside].mean())
        found.append(Bin(place / bins, (place + 1) / bins, int(inside.sum()), mean, share))
    return found


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = BINS) -> float:
    """ECE (Guo et al. 2017, equation 3): mean over answers of the gap between their bin's confidence and its accuracy.
    nan for none."""
    count = len(np.asarray(confidence))
    gaps = (b.n * abs(b.confidence - b.accuracy) for b in reliability(confidence, right, bins))
    return sum(gaps) / count if count else float("nan")
