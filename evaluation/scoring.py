"""Scores of one adapter, task by task, on a pinned slice of an instruction set.

The slice is chosen by the hash of each row's id, so that two adapters scored on different days are scored on the same
rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from data_gen.builder import Record
from evaluation.metrics import normalise, plan_score, roc_auc, tree_score
from evaluation.query_metrics import query_score
from evaluation.scores import Scores, TaskScore
from revelator import art
from revelator.errors import TaskOutputError
from revelator.language import logic, parse
from revelator.tasks import TASKS
from serving.engine import Engine
from serving.protocols import Completion
from serving.revelator_model import complete
from training.instructions import Instruction, pinned, read_split, verify_set

BATCH = 32


def pinned_rows(set_folder: Path, split: str, limit: int) -> list[Instruction]:
    """`limit` rows a task of a verified set."""
    verify_set(set_folder)
    return pinned(read_split(set_folder, split), limit)


def score(engine: Engine, rows: Sequence[Instruction], progress: Progress | None = None, title: str = "") -> Scores:
    """Scores by task; tasks without a row are left out. Greedy, in batches of rows of like length."""
    by_task: dict[str, list[Instruction]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    return {task: _score_task(engine, task, own, progress, title) for task, own in by_task.items()}


def _score_task(engine: Engine, task: str, rows: list[Instruction], progress: Progress | None, title: str) -> TaskScore:
    rows = sorted(rows, key=lambda row: len(row.prompt))
    bar = progress.add_task(f"{title}{task}", total=len(rows)) if progress else None
    done: list[Completion] = []
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        done += complete(engine, task, [row.prompt for row in part])
        if progress and bar is not None:
            progress.update(bar, completed=len(done))
    values = _row_values(rows, done)
    scores = {name: sum(own) / len(own) for name, own in values.items()}
    if len(labels := TASKS[task].labels or ()) == 2:
        auc = roc_auc([c.probabilities[labels[0]] for c in done], [r.label == labels[0] for r in rows])
        scores |= {} if math.isnan(auc) else {"auc": auc}
    return TaskScore(task, len(rows), scores, tuple(row.id for row in rows), values)


def _row_values(rows: Sequence[Instruction], done: Sequence[Completion]) -> dict[str, tuple[float, ...]]:
    each = [row_values(row, completion.text) for row, completion in zip(rows, done, strict=True)]
    return {name: tuple(float(row[name]) for row in each) for name in each[0]}


def row_values(row: Instruction | Record, output: str) -> dict[str, bool]:
    """The scores of one row's output, by name; the same names for every row of a task."""
    if row.label:
        return {"accuracy": output == row.label}
    gold = json.loads(row.gold)
    if row.task == "translate_bnf":
        question, names = TASKS[row.task].question(row.prompt), json.loads(row.entities)
        return asdict(plan_score(output, parse(gold), question, names))
    if row.task == "translate_logic":
        return asdict(query_score(output, logic.parse(gold)))
    if row.task == "translate_art":
        return asdict(tree_score(output, art.parse(gold)))
    try:
        written = TASKS[row.task].parse(output)
    except TaskOutputError:
        return {"equal": False}
    return {"equal": _key(written) == _key(gold)}


def _key(value: str | list[str]) -> list[str]:
    return sorted(map(normalise, [value] if isinstance(value, str) else value))


def progress_bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
