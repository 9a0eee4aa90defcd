"""How sure a reader is that a passage answers: fitted on dev."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.optimize import minimize

from revelator.errors import DataError
from revelator.reading import Calibration

PRIOR = 1e-2  # on the squares of the weights, so that separable rows leave them finite


def calibrate(margins: Iterable[tuple[float, float]], answerable: Iterable[bool]) -> Calibration:
    """Fits the logistic regression of `answerable` on kind and span margins. No weight is negative: a larger margin
    never makes an answer less likely.

    Raises DataError for margins that are no numbers and for rows of one class.
    """
    x, y = np.array(list(margins), float).reshape(-1, 2), np.array(list(answerable), float)
    if not np.isfinite(x).all():
        count = int((~np.isfinite(x)).any(1).sum())
        raise DataError(f"{count} of {len(x)} margins are no numbers: nothing can be calibrated on them")
    if len(set(y.tolist())) < 2:
        raise DataError("calibration needs rows with an answer and rows without one")
    x, sign = np.clip(x, -50, 50), 2 * y - 1

    def compute_loss(weights: np.ndarray) -> float:
        logits = sign * (x @ weights[:2] + weights[2])
        return float(np.logaddexp(0, -logits).sum() + PRIOR / 2 * (weights[:2] ** 2).sum())

    fitted = minimize(compute_loss, np.array([0.1, 0.1, 0.0]), bounds=[(0, None), (0, None), (None, None)])
    return Calibration(*map(float, fitted.x))
