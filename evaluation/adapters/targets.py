"""What the model is to reach, task by task, and what an adapter reaches: the table of its targets.

Plans and trees are counted on questions as they were asked, without the single steps that training also sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evaluation.adapters.predictions import LabelRow, Predicted, TextRow
from evaluation.measures.bootstrap import Interval, bootstrap, bootstrap_of
from evaluation.measures.metrics import balanced_accuracy, roc_auc
from revelator.tasks import TASKS
from training.answers import key


@dataclass(frozen=True)
class Target:
    """`source` is the set that rows are from, "" for all; `score` a field of the rows, or how labels are scored;
    `target` None where a figure is only reported."""

    task: str
    source: str
    score: str
    measure: str
    reference: str
    target: float | None


TARGETS = (
    Target(
        "translate_bnf", "musique", "leaves", "number of leaves as gold", "ProbTree with GPT-3.5 .734; probe .904", 0.95
    ),
    Target("translate_bnf", "musique", "letters", "letters as gold up to the order of `+`", "probe .904", 0.95),
    Target("translate_bnf", "musique", "arguments", "argument match", "", 0.75),
    Target("translate_bnf", "musique", "names", "every name of the question copied exactly", "", 0.98),
    Target("translate_bnf", "2wiki", "letters", "letters as gold up to the order of `+`", "probe .973", 0.99),
    Target("translate_bnf", "2wiki", "arguments", "argument match", "", 0.97),
    Target("translate_bnf", "world", "exact", "expression equal", "", 0.98),
    Target("translate_bnf", "world", "bound", "expression equal but for placeholders' names", "", None),
    Target("translate_logic", "", "right", "same truth table as gold", "Llama-3-70B by prompt .85-.87", 0.95),
    Target("translate_art", "", "right", "same operators and references", "", 0.85),
    Target("route", "", "balanced", "accuracy, balanced over the classes", "HANRAG .8393", 0.92),
    Target("decompose", "world", "right", "all parts right", "", 0.90),
    Target("refine", "", "right", "next question equal", "", None),
    Target("relevance", "musique", "auc", "area under the ROC curve", "", 0.90),
    Target("end", "", "accuracy", "accuracy", "", 0.95),
)


@dataclass(frozen=True)
class Reached:
    """One line of the table: what was asked for, and what was measured on `n` rows with its 95 % interval."""

    task: str
    source: str
    measure: str
    reference: str
    target: float | None
    value: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def reached(rows: Predicted) -> list[Reached]:
    """One line for each target that there are rows for."""
    lines = [(target, _measured(target, rows)) for target in TARGETS]
    return [
        Reached(t.task, t.source, t.measure, t.reference, t.target, found.mean, found.low, found.high, found.n)
        for t, found in lines
        if found.n
    ]


def same_answer(rows: Sequence[TextRow], answers: Mapping[str, tuple[str, ...]]) -> Reached:
    """The line of *refine* where it is known what questions are answered (`training.answers`): the next question is
    gold's, or another one with the same answer."""

    def answer(question: str) -> tuple[str, ...] | None:
        return answers.get(key(question))

    own = [row for row in rows if row.task == "refine"]
    right = [row.right or answer(row.output) == answer(json.loads(row.gold)) is not None for row in own]
    found = bootstrap(right, groups=[row.group for row in own])
    return Reached(
        "refine", "", "next question equal or same answer", "", None, found.mean, found.low, found.high, found.n
    )


def is_whole(row: Any) -> bool:
    """Whether a row is a question of the set itself and not one of its steps, asked as a single question."""
    return row.id.rpartition(f"/{getattr(row, 'task', 'translate_bnf')}/")[0] == row.group


def _measured(target: Target, rows: Predicted) -> Interval:
    if TASKS[target.task].labels:
        return _of_labels(target, [row for row in _of(rows.labels, target) if row.task == target.task])
    if target.task == "translate_bnf":
        found: list[Any] = [row for row in _of(rows.plans, target) if is_whole(row)]
    else:
        found = [row for row in _of(rows.texts, target) if row.task == target.task]
    if target.task == "translate_art":
        found = [row for row in found if is_whole(row)]
    return bootstrap([getattr(row, target.score) for row in found], groups=[row.group for row in found])


def _of(rows: Sequence[Any], target: Target) -> list[Any]:
    return [row for row in rows if not target.source or row.source == target.source]


def _of_labels(target: Target, rows: Sequence[LabelRow]) -> Interval:
    gold, predicted = np.array([row.gold for row in rows]), np.array([row.predicted for row in rows])
    probability = np.array([row.probability for row in rows])
    first = (TASKS[target.task].labels or ("",))[0]
    statistics: dict[str, Callable[[np.ndarray], float]] = {
        "balanced": lambda drawn: balanced_accuracy(predicted[drawn], gold[drawn]),
        "auc": lambda drawn: roc_auc(probability[drawn], gold[drawn] == first),
        "accuracy": lambda drawn: float(np.mean(predicted[drawn] == gold[drawn])),
    }
    return bootstrap_of(statistics[target.score], [row.group for row in rows])
