"""Computes the figures of a run from its rows: means with n and 95 % bootstrap interval, over all questions and by
groups of questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.harness.folder import FORMAT, METRICS, QUESTIONS, QuestionRow, Run, read_questions
from evaluation.metrics.bootstrap import Interval, bootstrap, bootstrap_statistic
from evaluation.metrics.labels import bin_by_confidence, calibration_error
from revelator.files import sha256_file, write_json

COSTS = ("tokens_in", "tokens_out", "generator_calls", "retrievals", "steps", "wall_s", "path_s")
get_costs = attrgetter(*COSTS)
GROUPS: dict[str, Callable[[QuestionRow], Any]] = {
    "route": lambda row: row.gold_route,
    "shape": lambda row: row.shape,
    "hops": lambda row: row.hops,
    "depth": lambda row: row.depth,
    "negations": lambda row: row.negations,
    "kind": lambda row: row.kind,
}
GROUPED = ("em", "acc", "f1", "valid", "letters", "ndcg@10", "recall", "steps", "tokens_in")
ECE_RESAMPLES = 500
FLOORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
REFUSALS = {"answer_floor": attrgetter("probability"), "relevance_floor": attrgetter("relevance")}  # by the limit
FEWEST = 5  # questions of a group that is shown on its own

Figure = dict[str, float]
Estimator = Callable[[np.ndarray], Interval]


def write_metrics(folder: Path, run: Run, estimate: Estimator = bootstrap) -> dict[str, Any]:
    """Measures a whole run and writes `metrics.json`. Raises DataError where a question is missing."""
    rows = read_questions(folder, run)
    value = {
        "format": FORMAT,
        "questions_sha256": sha256_file(folder / QUESTIONS),
        "normaliser": run.benchmark["normaliser"],
        **measure_rows(rows, estimate),
    }
    write_json(folder / METRICS, value)
    return value


def measure_rows(
    rows: Sequence[QuestionRow], estimate: Estimator = bootstrap, resamples: int = ECE_RESAMPLES
) -> dict[str, Any]:
    """`figures`, `groups`, `confusion` and `calibration` of `evaluation.harness.folder`. A refused question scores 0,
    and costs are means over the questions whose cost is known. `resamples` are those of the calibration error."""
    table = _tabulate(rows)
    figures = {name: _estimate_figure(values[~np.isnan(values)], estimate) for name, values in table.items()}
    pairs = [(row.gold_route, row.route) for row in rows if row.gold_route and row.route]
    return {
        "n": len(rows),
        "figures": {name: figure for name, figure in figures.items() if figure["n"]},
        "groups": {name: _estimate_groups(rows, table, key, estimate) for name, key in GROUPS.items()},
        "confusion": count_confusion(pairs),
        "calibration": _measure_calibration(rows, resamples),
        "coverage": {limit: found for limit in REFUSALS if (found := measure_coverage(rows, limit))},
        "errors": dict(Counter(row.error for row in rows if row.status == "error")),
    }


def _tabulate(rows: Sequence[QuestionRow]) -> dict[str, np.ndarray]:
    """Returns each measure as an array (n,), with nan for rows that lack it."""
    names = dict.fromkeys(name for row in rows for name in row.scores)
    table = {name: np.array([row.scores.get(name, np.nan) for row in rows]) for name in names}
    answered = np.array([row.status != "error" for row in rows])
    counted = np.array([row.has_cost for row in rows], bool)
    for name in ("em", "acc", "f1"):
        if name in table:
            table[name] = np.where(np.isnan(table[name]) & ~answered, 0.0, table[name])
    costs = np.array([get_costs(row.cost) for row in rows], float).reshape(-1, len(COSTS))
    for name, column in zip(COSTS, costs.T, strict=True):
        table[name] = np.where(counted, column, np.nan)
    calls = [float(sum(row.cost.model_calls.values())) for row in rows]
    table["model_calls"] = np.where(counted, calls, np.nan)
    for status in ("answered", "partial", "unanswered", "failed", "error"):
        table[status] = np.array([float(row.status == status) for row in rows])
    return table


def _estimate_figure(values: np.ndarray, estimate: Estimator) -> Figure:
    if not len(values):
        return {"n": 0}
    if (values == values[0]).all():  # no draw can differ
        return {"n": len(values), "value": float(values[0]), "low": float(values[0]), "high": float(values[0])}
    return _to_figure(estimate(values))


def _estimate_groups(
    rows: Sequence[QuestionRow],
    table: dict[str, np.ndarray],
    key: Callable[[QuestionRow], Any],
    estimate: Estimator,
) -> dict[str, dict[str, Figure]]:
    """Estimates the figures of each group; nothing if all questions belong to one group."""
    keys = [str(key(row)) for row in rows]
    if len(set(keys)) < 2:
        return {}
    members: dict[str, list[int]] = {}
    for place, name in enumerate(keys):
        members.setdefault(name, []).append(place)
    found: dict[str, dict[str, Figure]] = {}
    for name, places in sorted(members.items()):
        if name and len(places) >= FEWEST:
            inside = {measure: table[measure][places] for measure in GROUPED if measure in table}
            figures = {
                measure: _estimate_figure(column[~np.isnan(column)], estimate) for measure, column in inside.items()
            }
            found[name] = {measure: figure for measure, figure in figures.items() if figure["n"]}
    return found


def count_confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts predicted labels by gold label, from pairs (gold, predicted)."""
    found: dict[str, dict[str, int]] = {}
    for (gold, predicted), count in sorted(Counter(pairs).items()):
        found.setdefault(gold, {})[predicted] = count
    return found


def _measure_calibration(rows: Sequence[QuestionRow], resamples: int) -> dict[str, Any]:
    """Measures the calibration of each label task. Whole questions are drawn, because their documents are judged
    alike."""
    found: dict[str, Any] = {}
    for task in dict.fromkeys(label.task for row in rows for label in row.labels):
        pairs = [(row.id, label) for row in rows for label in row.labels if label.task == task]
        _, groups = np.unique([id for id, _ in pairs], return_inverse=True)  # once for both
        sure = np.array([label.probability for _, label in pairs])
        right = np.array([label.predicted == label.gold for _, label in pairs])

        def error(drawn: np.ndarray, sure: np.ndarray = sure, right: np.ndarray = right) -> float:
            return calibration_error(sure[drawn], right[drawn])

        found[task] = {
            "n": len(pairs),
            "ece": _to_figure(bootstrap_statistic(error, groups, resamples=resamples)),
            "accuracy": _to_figure(bootstrap(right, groups=groups, resamples=20 * resamples)),
            "bins": [asdict(one) for one in bin_by_confidence(sure, right)],
        }
    return found


def measure_coverage(rows: Sequence[QuestionRow], limit: str) -> list[dict[str, float]]:
    """Measures what a floor would refuse: of all questions the share that keep their answer, and of these the share
    that is right (EM). A run with both floors at 0 shows the whole curve; one that refused answers lacks them."""
    known = [REFUSALS[limit](row) for row in rows]
    if not any(row.scores and value is not None for row, value in zip(rows, known, strict=True)):
        return []
    sure = np.array([1.0 if value is None else value for value in known])  # no floor refuses what has no probability
    answered = np.array([bool(row.predictions) for row in rows])
    right = np.array([row.scores.get("em", 0.0) for row in rows])
    curve = []
    for floor in FLOORS:
        covered = answered & (sure >= floor)
        if covered.any():
            curve.append({"floor": floor, "coverage": float(covered.mean()), "accuracy": float(right[covered].mean())})
    return curve


def _to_figure(found: Interval) -> Figure:
    return {"n": found.n, "value": found.mean, "low": found.low, "high": found.high}
