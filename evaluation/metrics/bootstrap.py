"""Percentile bootstrap intervals (Efron and Tibshirani 1993, chapter 13) of a mean, over rows or over groups of rows,
of a ratio of sums, and of the area under a curve.

Rows that share a question are not independent: with `groups`, whole questions are drawn, and the mean is the ratio of
the drawn sums to the drawn counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from revelator.scores import roc_auc

RESAMPLES = 10_000
DRAWN_AT_ONCE = 4_000_000  # indices held in memory at a time: 32 MB


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval; `n` counts rows. All nan when there is no row."""

    mean: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, float]:
        """As files hold it: a figure {n, value, low, high}."""
        return {"n": self.n, "value": self.mean, "low": self.low, "high": self.high}


NO_INTERVAL = Interval(np.nan, np.nan, np.nan, 0)


def bootstrap(
    values: ArrayLike,
    *,
    groups: Sequence[str] | np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Computes the mean of `values`, shape (n,), and its interval; `groups` names the unit to which each row belongs,
    by default its own."""
    rows = np.asarray(values, dtype=float)
    member = np.arange(len(rows)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if len(member) != len(rows):
        raise ValueError(f"{len(rows)} values and {len(member)} groups")
    if not len(rows):
        return NO_INTERVAL
    if (rows == rows[0]).all():  # no draw can differ
        return Interval(float(rows[0]), float(rows[0]), float(rows[0]), len(rows))
    means = _draw_means(np.bincount(member, rows)[:, None], np.bincount(member)[:, None], resamples, seed)
    return _take_interval(rows.mean(), means[:, 0], 0.975, len(rows))


def _draw_means(sums: np.ndarray, counts: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Draws groups with repetition and returns the mean of each column, shape (resamples, columns): drawn sums over
    drawn counts, nan where nothing was drawn. `sums` and `counts` have shape (groups, columns)."""
    means = []
    for times in _draw_times(len(sums), resamples, seed):
        with np.errstate(invalid="ignore"):
            means.append((times @ sums) / (times @ counts))
    return np.concatenate(means)


def _draw_times(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of `n` is drawn, shape (draws, n), some of the `resamples` draws at a time."""
    generator, step = np.random.default_rng(seed), max(1, DRAWN_AT_ONCE // n)
    for start in range(0, resamples, step):
        shape = (min(step, resamples - start), n)
        drawn = generator.integers(0, n, size=shape) + np.arange(shape[0])[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=drawn.size).reshape(shape).astype(float)


def bootstrap_ratio(parts: ArrayLike, wholes: ArrayLike) -> Interval:
    """Computes the sum of `parts` over the sum of `wholes`, shape (n,) each, and its interval over drawn rows."""
    sums, counts = np.asarray(parts, dtype=float)[:, None], np.asarray(wholes, dtype=float)[:, None]
    if not len(sums):
        return NO_INTERVAL
    means = _draw_means(sums, counts, RESAMPLES, seed=0)
    return _take_interval(sums.sum() / counts.sum(), means[:, 0], 0.975, len(sums))


def bootstrap_auc(scores: ArrayLike, positive: ArrayLike) -> Interval:
    """Computes the area under the curve (`revelator.scores.roc_auc`) of `scores`, shape (n,), and its interval over
    drawn rows. A draw of one class alone does not count; all nan where there are rows of one class alone."""
    values, truth = np.asarray(scores, dtype=float), np.asarray(positive, dtype=bool)
    if truth.all() or not truth.any():
        return NO_INTERVAL
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-np.inf))  # of rows with equal scores
    ours, areas = truth[order].astype(float), []
    for times in _draw_times(len(values), RESAMPLES, seed=0):
        above, below = (np.add.reduceat(times * side, starts, axis=1) for side in (ours, 1 - ours))
        wins = above * (np.cumsum(below, axis=1) - below / 2)
        with np.errstate(invalid="ignore"):
            areas.append(wins.sum(axis=1) / (above.sum(axis=1) * below.sum(axis=1)))
    return _take_interval(roc_auc(values, truth), np.concatenate(areas), 0.975, len(values))


def paired_bootstrap(
    differences: Mapping[str, ArrayLike],
    groups: Mapping[str, Sequence[str]],
    *,
    confidence: float,
) -> tuple[dict[str, Interval], Interval]:
    """Computes the mean difference of each task, and of the mean over tasks, with the interval from the
    `1 - confidence` to the `confidence` quantile.

    `differences[task]`, shape (rows,), is one system's score minus the other's on the same row; `groups[task]` names
    each row's question. Whole questions are drawn, with the rows of all their tasks, because those are not
    independent. A draw without a row of a task does not count for that task, nor for the mean.
    """
    tasks = list(differences)
    names = np.unique(np.concatenate([np.asarray(groups[task]) for task in tasks]))
    place = {name: index for index, name in enumerate(names)}
    sums, counts = np.zeros((2, len(names), len(tasks)))
    for column, task in enumerate(tasks):
        member = np.array([place[group] for group in groups[task]])
        np.add.at(sums[:, column], member, np.asarray(differences[task], dtype=float))
        np.add.at(counts[:, column], member, 1)
    means = _draw_means(sums, counts, RESAMPLES, seed=0)
    found = sums.sum(axis=0) / counts.sum(axis=0)
    each = {
        task: _take_interval(found[column], means[:, column], confidence, int(counts[:, column].sum()))
        for column, task in enumerate(tasks)
    }
    return each, _take_interval(found.mean(), means.mean(axis=1), confidence, int(counts.sum()))


def _take_interval(mean: float, drawn: np.ndarray, confidence: float, n: int) -> Interval:
    low, high = np.nanquantile(drawn, [1 - confidence, confidence]) if not np.isnan(drawn).all() else (np.nan, np.nan)
    return Interval(float(mean), float(low), float(high), n)
