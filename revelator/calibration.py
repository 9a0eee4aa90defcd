"""Logistic regression: how likely something is, given its scores. The reader and logical retrieval are calibrated by
it."""

from __future__ import annotations

import numpy as np


def fit_logistic(scores: np.ndarray, targets: np.ndarray, prior: float = 0.0) -> tuple[np.ndarray, float]:
    """Fits weights (k,) and bias of P(target) = 1 / (1 + exp(-(scores · weights + bias))) by highest likelihood.

    `scores` is (n, k), `targets` (n,) in [0, 1]. No weight is negative: a higher score never makes a target less
    likely. `prior` weighs the squares of the weights, so that rows which a threshold separates leave them finite.
    """
    from scipy.optimize import minimize  # takes 0.4 s to import, and only who calibrates needs it

    def measure_loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = values[:-1], values[-1]
        logits = scores @ weights + bias
        loss = (np.logaddexp(0, logits) - targets * logits).sum() + prior / 2 * (weights**2).sum()
        beyond = 1 / (1 + np.exp(-np.clip(logits, -60, 60))) - targets
        return float(loss), np.append(scores.T @ beyond + prior * weights, beyond.sum())

    count = scores.shape[1]
    start, bounds = np.append(np.full(count, 0.1), 0.0), [(0, None)] * count + [(None, None)]
    fitted = minimize(measure_loss, start, jac=True, bounds=bounds, tol=1e-12).x
    return fitted[:-1], float(fitted[-1])
