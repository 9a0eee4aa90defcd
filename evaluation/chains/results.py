"""Writes a page of results from measured rows, and from nothing else: every figure has its n and its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from string import Template
from typing import Any

from evaluation.adapters.predictions import LabelRow, PlanRow, Predicted, TextRow
from evaluation.adapters.targets import Reached, is_whole, reached
from evaluation.chains.answers import AnswerRow
from evaluation.harness.formats import FORMATS
from evaluation.measures.bootstrap import bootstrap
from evaluation.measures.metrics import roc_auc, title_recall
from evaluation.published import TITLES, table
from evaluation.retrieval.recall import Retrieved
from revelator.tasks import TASKS

CUTOFFS = (1, 5, 10)
COSTS = {
    "tokens_in": "model tokens in",
    "tokens_out": "model tokens out",
    "model_calls": "revelator prompts",
    "generator_calls": "generator calls",
    "retrievals": "retrievals",
    "wall_ms": "wall time (ms)",
    "critical_path_ms": "critical path (ms)",
}


@dataclass(frozen=True)
class Measured:
    """All rows of one measurement. `predicted` are retrievals with the leaves that were really asked; `facts` are lines
    of the page's head (command, machine, digests)."""

    plans: list[PlanRow]
    labels: list[LabelRow]
    texts: list[TextRow]
    gold: list[Retrieved]
    predicted: list[Retrieved]
    answers: list[AnswerRow]
    facts: dict[str, str] = field(default_factory=dict)


def page_text(measured: Measured) -> str:
    """The whole page in Markdown."""
    template = files("evaluation.chains").joinpath("results_template.md").read_text(encoding="utf-8")
    head = "\n".join(f"* **{name}**: {value}" for name, value in measured.facts.items())
    return Template(template).substitute(
        facts=head,
        targets=targets_table(reached(Predicted(measured.plans, measured.labels, measured.texts))),
        plans=plans_table(measured.plans),
        shapes=shapes_table(measured.plans),
        labels=labels_table(measured.labels),
        coverage=coverage_table(measured.gold),
        recall=recall_table(measured),
        answers=answers_table(measured),
        costs=costs_table(measured.answers),
        reasons=reasons(measured),
        reproduce=measured.facts["Command"].strip("`"),
    )


def mean(rows: Sequence[Any], value: Callable[[Any], float], decimals: int = 3) -> str:
    """Mean and interval over rows, whole questions drawn where several rows stem from one."""
    if not rows:
        return "no rows"
    return interval([value(row) for row in rows], [getattr(row, "group", row.id) for row in rows], decimals)


def interval(values: Sequence[float], groups: Sequence[str] | None = None, decimals: int = 3) -> str:
    found = bootstrap(values, groups=groups)
    return f"{found.mean:.{decimals}f} [{found.low:.{decimals}f}, {found.high:.{decimals}f}]"


def by_set(rows: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    return [(title, found) for name, title in TITLES.items() if (found := [row for row in rows if row.source == name])]


def targets_table(reached: Sequence[Reached]) -> str:
    names = TITLES | {"": "all"}
    lines = [
        [
            line.task.replace("_", " "),
            names.get(line.source, line.source),
            line.measure,
            line.reference or "–",
            "reported" if line.target is None else f"≥ {line.target:.2f}",
            f"{line.value:.3f}",
            f"{line.n:,}",
            f"[{line.low:.3f}, {line.high:.3f}]",
        ]
        for line in reached
    ]
    return table(["task", "set", "measure", "reference", "target", "value", "n", "95 % interval"], lines)


def plans_table(rows: Sequence[PlanRow]) -> str:
    kinds = (("multi-hop", is_whole), ("single steps", lambda row: not is_whole(row)))
    measures = ("valid", "letters", "leaves", "arguments", "names", "exact")
    lines = []
    for title, found in by_set(rows):
        for kind, belongs in kinds:
            if part := [row for row in found if belongs(row)]:
                lines.append([f"{title}, {kind}", len(part), *(mean(part, attrgetter(m)) for m in measures)])
    head = [
        "valid",
        "letters as gold",
        "number of leaves as gold",
        "arguments as gold",
        "names copied",
        "word for word",
    ]
    return table(["set", "n", *head], lines)


def shapes_table(rows: Sequence[PlanRow]) -> str:
    lines = []
    for title, found in by_set([row for row in rows if is_whole(row)]):
        ordered = sorted(found, key=lambda row: row.shape)
        for shape, group in groupby(ordered, key=lambda row: row.shape):
            part = list(group)
            lines.append(
                [title, f"`{shape}`", len(part), mean(part, attrgetter("valid")), mean(part, attrgetter("letters"))]
            )
    return table(["set", "gold shape", "n", "valid", "letters as gold"], lines)


def labels_table(rows: Sequence[LabelRow]) -> str:
    lines = []
    for title, found in by_set(rows):
        for task in dict.fromkeys(row.task for row in found):
            part = [row for row in found if row.task == task]
            label, count = Counter(row.gold for row in part).most_common(1)[0]
            first = _first_label(task)
            area = roc_auc([row.probability for row in part], [row.gold == first for row in part])
            auc = f"{area:.3f}" if first == "yes" else "–"
            right = mean(part, lambda r: r.predicted == r.gold)
            lines.append([title, task, len(part), right, f"{count / len(part):.3f} (`{label}`)", auc])
    return table(["set", "task", "n", "accuracy", "always the commonest label", "area under the ROC curve"], lines)


def _first_label(task: str) -> str:
    return (TASKS[task].labels or ("",))[0]


def coverage_table(rows: Sequence[Retrieved]) -> str:
    corpora = {"Wikipedia's introductions alone": "wikipedia", "with the sets' passages": "present"}
    lines = []
    for title, found in by_set(rows):
        for corpus, held in corpora.items():
            shares = [len(getattr(row, held)) / len(row.gold) for row in found]
            cells = (shares, [share == 1 for share in shares], [share == 0 for share in shares])
            lines.append([title, corpus, len(found), *(interval(cell) for cell in cells)])
    return table(["set", "index", "n", "gold titles in it", "questions with all of them", "questions with none"], lines)


def recall_table(measured: Measured) -> str:
    """Over questions all of whose gold titles are in the index. The three ways to ask, and the whole question once more
    with as many passages as its plan's leaves have together."""
    ways: list[tuple[str, list[Retrieved], Callable[[int, Retrieved], float]]] = [
        ("whole question", measured.gold, lambda k, r: title_recall([r.whole], r.gold, k)),
        ("whole question, k × leaves passages", measured.gold, _same_budget),
        ("gold steps, gold answers between", measured.gold, lambda k, r: title_recall(r.leaves, r.gold, k)),
        ("executed sample: whole question", measured.predicted, lambda k, r: title_recall([r.whole], r.gold, k)),
        ("executed sample: leaves as asked", measured.predicted, lambda k, r: title_recall(r.leaves, r.gold, k)),
    ]
    lines = []
    for name, title in TITLES.items():
        for way, rows, recall in ways:
            part = [row for row in rows if row.source == name and len(row.present) == len(row.gold)]
            cells = [mean(part, partial(recall, k)) for k in CUTOFFS]
            lines.append([title, way, len(part), *cells])
    return table(["set", "asked", "n", *(f"recall@{k}" for k in CUTOFFS)], lines)


def _same_budget(k: int, row: Retrieved) -> float:
    return title_recall([row.whole], row.gold, k * max(1, len(row.leaves)))


def answers_table(measured: Measured) -> str:
    covered = {row.id for row in measured.gold if len(row.present) == len(row.gold)}
    groups: tuple[tuple[str, Callable[[AnswerRow], bool]], ...] = (
        ("all", lambda r: True),
        ("all gold titles in the index", lambda r: r.id in covered),
        ("some gold title missing", lambda r: r.id not in covered),
    )
    lines = []
    for name, title in TITLES.items():
        for group, belongs in groups:
            part = [row for row in measured.answers if row.source == name and belongs(row)]
            cells = [mean(part, attrgetter(m)) for m in ("em", "acc", "f1")]
            lines.append([title, FORMATS[name].normaliser, group, len(part), *cells])
    return table(["set", "normaliser", "questions", "n", "EM", "Acc", "F1"], lines)


def costs_table(rows: Sequence[AnswerRow]) -> str:
    sets = by_set([row for row in rows if not row.error])
    lines = [[label, *(mean(found, attrgetter(name), 1) for _, found in sets)] for name, label in COSTS.items()]
    return table(["a question", *(f"{title} (n={len(found)})" for title, found in sets)], lines)


def reasons(measured: Measured) -> str:
    """Shares that say where answers are lost, one line each, from the rows of the executed sample."""
    coverage = {row.id: row for row in measured.gold}
    reached = {row.id: title_recall(row.leaves, row.gold, CUTOFFS[-1]) == 1 for row in measured.predicted if row.leaves}
    checks: tuple[tuple[str, Callable[[AnswerRow], bool]], ...] = (
        ("some gold title is not in the index at all", lambda r: r.id in coverage and not _covered(coverage[r.id])),
        ("the route was not `complex`", lambda r: r.route != "complex" and not r.error),
        ("no plan of the model could be run", lambda r: r.degraded),
        ("the executed leaves found every gold title in their first 10", lambda r: reached.get(r.id, False)),
        ("the answer is empty", lambda r: not r.answer),
        ("outcome partial", lambda r: r.outcome == "partial"),
        ("outcome failed", lambda r: r.outcome == "failed"),
        ("the server refused the question", lambda r: bool(r.error)),
        ("exact although a gold title is not in the index", lambda r: r.em == 1 and not _covered(coverage.get(r.id))),
        (
            "not exact although every gold title was found",
            lambda r: r.em == 0 and reached.get(r.id, False),
        ),
    )
    sets = by_set(measured.answers)
    lines = [[text, *(mean(found, holds) for _, found in sets)] for text, holds in checks]
    return table(["share of executed questions where", *(f"{title} (n={len(found)})" for title, found in sets)], lines)


def _covered(row: Retrieved | None) -> bool:
    return row is not None and len(row.present) == len(row.gold)
