"""Scores → probabilities that a document is about a term: σ((s - τ)·λ) (ITLR, appendix E), fitted on few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from revelator.errors import DataError

STEPS = 50
POSITIVES = NEGATIVES = 20  # documents a term, as in the paper


@dataclass(frozen=True)
class Calibration:
    """σ((s - threshold)·slope): `threshold` is the score at which a document is as likely about the term as not."""

    threshold: float
    slope: float

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities, of the shape of `scores`."""
        return 1 / (1 + np.exp(np.clip((self.threshold - scores) * self.slope, -60, 60)))


@dataclass(frozen=True)
class Calibrations:
    """One calibration for each term that was labelled, and `general`, of all labels, for every other.

    They hold for scores of one `source`, and where these are cosines for one model (its digest; "" for BM25).
    """

    source: str
    model: str
    general: Calibration
    terms: Mapping[str, Calibration]

    def of(self, term: str) -> Calibration:
        return self.terms.get(term, self.general)


def fit(scores: ArrayLike, labels: ArrayLike) -> Calibration:
    """The calibration of highest likelihood for `labels` (1: about the term) of documents with `scores`.

    The targets are Platt's ((n+1)/(n+2) for n positives, 1/(n+2) for n negatives), so that scores which a threshold
    separates still give a finite slope. Newton's method. Raises DataError without a document of each label.
    """
    s, y = np.asarray(scores, float), np.asarray(labels, bool)
    positives, negatives = int(y.sum()), int((~y).sum())
    if not positives or not negatives:
        raise DataError(f"a calibration needs documents of both labels, not {positives} and {negatives}")
    center, scale = s.mean(), max(float(s.std()), 1e-9)
    x = (s - center) / scale
    target = np.where(y, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    slope, shift = 1.0, 0.0
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-(slope * x + shift)))
        gradient = np.array([((p - target) * x).sum(), (p - target).sum()])
        w = np.maximum(p * (1 - p), 1e-9)
        hessian = np.array([[(w * x * x).sum(), (w * x).sum()], [(w * x).sum(), w.sum()]]) + 1e-6 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        slope, shift = slope - step[0], shift - step[1]
        if np.abs(step).max() < 1e-9:
            break
    slope = max(slope, 1e-3)  # a higher score never means less
    return Calibration(float(center - shift / slope * scale), float(slope / scale))


def self_labelled(scores: np.ndarray, seed: int = 0) -> Calibration:
    """A calibration without labels: the term's best documents stand for positives, others at random for negatives."""
    positives = min(POSITIVES, max(1, len(scores) // 2))
    order = np.argsort(-scores, kind="stable")
    rest = np.random.default_rng(seed).permutation(order[positives:])[:NEGATIVES]
    chosen = np.concatenate([order[:positives], rest])
    return fit(scores[chosen], np.arange(len(chosen)) < positives)
