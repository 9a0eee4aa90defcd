"""How sure a reader is that a passage answers: fitted on dev."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from revelator.calibration import fit_logistic
from revelator.errors import DataError
from revelator.reading import Calibration

PRIOR = 1e-2  # keeps the weights of separable rows finite


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
    (kind, span), bias = fit_logistic(np.clip(x, -50, 50), y, PRIOR)
    return Calibration(float(kind), float(span), bias)
