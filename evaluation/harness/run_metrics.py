"""Computes the figures of a run from its rows: means with n and 95 % bootstrap interval, over all questions and by
groups of questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.harness.folder import FORMAT, METRICS, QUESTIONS, QuestionRow, Run, read_questions
from evaluation.metrics.bootstrap import bootstrap
from evaluation.seen import SeenCount
from revelator.files import sha256_file, write_json
from revelator.tasks import PLANNING
from revelator.trace import Trace

ANSWERS = {"em": "exact match", "acc": "accuracy", "f1": "F1"}
GIVEN, REFUSED = "given", "refused"
SCORES = ANSWERS | {
    GIVEN: "answer given",
    REFUSED: "rightly refused",
    "ndcg@10": "ranking (nDCG@10)",
    "recall": "gold pages found",
    "recall@10": "gold pages in the first 10",
    "route": "right route",
    "valid": "valid plan",
    "letters": "right plan shape",
}
COSTS = {
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "generator_calls": "reader calls",
    "model_calls": "revelator prompts",
    "retrievals": "searches",
    "documents": "documents read",
    "steps": "steps in a row",
    "wall_s": "seconds",
    "path_s": "seconds of the longest chain",
}
STATUSES = {
    "answered": "answered",
    "partial": "partial",
    "unanswered": "unanswered",
    "failed": "failed",
    "error": "refused",
}
MEASURES = SCORES | COSTS | STATUSES  # as tables name them
MEANINGS = {
    "em": "The answer is a gold answer, compared by the benchmark's own rule.",
    "acc": "The answer contains a gold answer; of a list the share of gold values that it contains.",
    "f1": "The words that the answer shares with a gold answer; of a list the values.",
    GIVEN: "There is an answer, right or wrong, to a question that has one.",
    REFUSED: "There is no answer to a question that has none.",
    "ndcg@10": "How far up the gold pages stand among the first ten pages that were found (nDCG@10).",
    "recall": "The share of gold pages among all pages that were found.",
    "recall@10": "The share of gold pages among the first ten.",
    "route": "The route is that of the benchmark.",
    "valid": "The plan is the planner's own and passes every check.",
    "letters": "The plan has the letters of the gold plan, such as A * B + C.",
    "tokens_in": "Tokens that models read: the revelator or a planner in its place, and a language model that reads.",
    "tokens_out": "Tokens that these models wrote.",
    "generator_calls": "Calls of what reads passages and answers: the embedded reader or a language model.",
    "model_calls": "Prompts put to the revelator, or to a planner in its place, a document that it judges among them.",
    "retrievals": "Searches of an index or another source.",
    "documents": "Passages that were read, each as often as it was.",
    "steps": "Rounds of searching and reading that wait for each other.",
    "wall_s": "From the question to the answer, with other questions in flight.",
    "path_s": "The longest chain of work that waits for each other.",
}
PARTS = {
    "route": "route",
    "plan": "plan, split, refine, end",
    "relevance": "relevance",
    "search": "search",
    "reader": "reader, generator",
}
PART_COSTS = {
    "calls": "calls",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "seconds": "seconds of work",
    "share": "share of the work",
}
MEANINGS |= {
    "calls": "Prompts, searches and readings.",
    "seconds": "The time of these calls; some run side by side.",
    "share": "The part's share of the seconds of work.",
}
GROUPS = ("gold_route", "shape", "hops", "depth", "terms", "negations", "kind")  # fields of a row
GROUPED = ("em", "acc", "f1", "valid", "letters", "ndcg@10", "recall", "steps", "tokens_in")
FLOORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
OUTCOMES = {  # of a run that was asked questions without an answer
    "right": "right",
    "wrong": "wrong",
    "rightly_refused": "rightly refused",
    "wrongly_refused": "wrongly refused",
    "answered_without": "answered, and has no answer",
    "lost": "lost",
}
LOST = ("failed", "error")  # a question that ended so was neither answered nor refused
MEANINGS |= {
    "right": "The answer is a gold answer (exact match).",
    "wrong": "Another answer was given.",
    "rightly_refused": MEANINGS[REFUSED],
    "wrongly_refused": "There is no answer to a question that has one.",
    "answered_without": "There is an answer to a question that has none.",
    "lost": "A part of the service failed, or the question was not taken.",
}
REFUSALS = {"answer_floor": attrgetter("probability"), "relevance_floor": attrgetter("relevance")}  # by the limit
FEWEST = 5  # questions of a group that is shown on its own

Figure = dict[str, float]


def write_metrics(folder: Path, run: Run) -> dict[str, Any]:
    """Measures a whole run and writes `metrics.json`. Raises DataError where a question is missing."""
    rows = read_questions(folder, run)
    value = {
        "format": FORMAT,
        "questions_sha256": sha256_file(folder / QUESTIONS),
        "normaliser": run.benchmark["normaliser"],
        **measure_rows(rows),
        **SeenCount.of((row.seen for row in rows), run.unknown).to_json(),
        "without_gold": run.without_gold,
    }
    write_json(folder / METRICS, value)
    return value


def measure_rows(rows: Sequence[QuestionRow]) -> dict[str, Any]:
    """`figures`, `groups`, `parts`, `confusion`, `coverage` and `outcomes` of `evaluation.harness.folder`. A question
    that ended in an error scores 0, and costs are means over the questions whose cost is known."""
    table = _tabulate(rows)
    traces = [row.trace if isinstance(row.trace, Trace) else Trace.from_json(row.trace) for row in rows if row.trace]
    pairs = [(row.gold_route, row.route) for row in rows if row.gold_route and row.route]
    return {
        "n": len(rows),
        "figures": _estimate_figures(table),
        "groups": {field.removeprefix("gold_"): _estimate_groups(rows, table, field) for field in GROUPS},
        "parts": measure_parts(traces) if traces else {},
        "confusion": count_confusion(pairs),
        "coverage": {limit: found for limit in REFUSALS if (found := measure_coverage(rows, limit))},
        "outcomes": count_outcomes(rows) if any(REFUSED in row.scores for row in rows) else {},
        "errors": dict(Counter(row.error for row in rows if row.status == "error")),
    }


def measure_parts(traces: Sequence[Trace]) -> dict[str, dict[str, float]]:
    """The `PART_COSTS` of each part of a system, means of a question."""
    found = {part: dict.fromkeys(PART_COSTS, 0.0) for part in PARTS}
    for call in (call for trace in traces for node in trace.nodes for call in node.list_calls()):
        task = call["task"]
        name = "search" if task.startswith("search") else "plan" if task in PLANNING else "reader"
        part = found[task if task in PARTS else name]
        part["calls"] += call["count"] / len(traces)
        part["seconds"] += call["ms"] / 1000 / len(traces)
        for tokens in ("tokens_in", "tokens_out"):
            part[tokens] += call.get(tokens, 0) / len(traces)
    whole = sum(part["seconds"] for part in found.values())
    return {name: part | {"share": part["seconds"] / whole if whole else 0.0} for name, part in found.items()}


def measure_row(row: QuestionRow, name: str) -> float | None:
    """Returns a score or a cost of one question, or whether it has a status; None where that is not known. A question
    that ended in an error scores 0 for its answer, or for its refusal if it has none."""
    if name in STATUSES:
        return float(row.status == name)
    lost = row.status == "error"
    if name == GIVEN:
        return float(bool(row.predictions)) if "em" in row.scores or (lost and row.golds) else None
    if name not in COSTS:
        wanted = ANSWERS if row.golds else (REFUSED,)
        return row.scores.get(name, 0.0 if lost and name in wanted else None)
    if not row.has_cost:
        return None
    return float(sum(row.cost.model_calls.values()) if name == "model_calls" else getattr(row.cost, name))


def _tabulate(rows: Sequence[QuestionRow]) -> dict[str, np.ndarray]:
    """Returns each measure as an array (n,), with nan for rows that lack it."""
    names = dict.fromkeys([*(name for row in rows for name in row.scores), GIVEN, *COSTS, *STATUSES])
    return {name: np.array([measure_row(row, name) for row in rows], float) for name in names}


def _estimate_figures(columns: dict[str, np.ndarray]) -> dict[str, Figure]:
    """Estimates each column without its nan; a column of nan alone is left out."""
    known = {name: values[~np.isnan(values)] for name, values in columns.items()}
    return {name: bootstrap(values).to_json() for name, values in known.items() if len(values)}


def _estimate_groups(
    rows: Sequence[QuestionRow], table: dict[str, np.ndarray], field: str
) -> dict[str, dict[str, Figure]]:
    """Estimates the figures of each group; nothing if all questions belong to one group."""
    keys = np.array([str(getattr(row, field)) for row in rows])
    members = {str(key): np.flatnonzero(keys == key) for key in np.unique(keys)}
    return {
        key: _estimate_figures({name: table[name][places] for name in GROUPED if name in table})
        for key, places in members.items()
        if key and len(places) >= FEWEST and len(members) > 1
    }


def count_confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts predicted labels by gold label, from pairs (gold, predicted)."""
    found: dict[str, dict[str, int]] = {}
    for (gold, predicted), count in sorted(Counter(pairs).items()):
        found.setdefault(gold, {})[predicted] = count
    return found


def count_outcomes(rows: Sequence[QuestionRow]) -> dict[str, int]:
    """How many of the questions ended in each of the `OUTCOMES`."""

    def name_outcome(row: QuestionRow) -> str:
        if row.status in LOST and not row.predictions:
            return "lost"
        if not row.golds:
            return "answered_without" if row.predictions else "rightly_refused"
        return "right" if row.scores.get("em") else "wrong" if row.predictions else "wrongly_refused"

    found = Counter(map(name_outcome, rows))
    return {name: found[name] for name in OUTCOMES}


def measure_coverage(rows: Sequence[QuestionRow], limit: str) -> list[dict[str, float]]:
    """Measures what a floor would refuse: of all questions the share that keep their answer (`coverage`), and of these
    the share that is right (`accuracy`, EM); of the right answers the share that is `kept`, and of the questions
    without an answer, if any, the share that is `refused`. A run with both floors at 0 shows the whole curve; one that
    refused answers lacks them."""
    known = [REFUSALS[limit](row) for row in rows]
    if not any(row.scores and value is not None for row, value in zip(rows, known, strict=True)):
        return []
    sure = np.array([1.0 if value is None else value for value in known])  # no floor refuses what has no probability
    answered = np.array([bool(row.predictions) for row in rows])
    right = np.array([row.scores.get("em", 0.0) for row in rows])
    unanswerable = np.array([not row.golds for row in rows])
    curve = []
    for floor in FLOORS:
        covered = answered & (sure >= floor)
        if covered.any():
            one = {"floor": floor, "coverage": float(covered.mean()), "accuracy": float(right[covered].mean())}
            if right.any():
                one["kept"] = float(right[covered].sum() / right.sum())
            if unanswerable.any():
                one["refused"] = float(1 - covered[unanswerable].mean())
            curve.append(one)
    return curve
