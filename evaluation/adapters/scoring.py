"""Scores of one adapter, task by task, on a pinned slice of an instruction set.

The slice is chosen by the hash of each row's id, so that two adapters scored on different days are scored on the same
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evaluation.adapters.row_scores import row_values
from evaluation.adapters.scores import Scores, TaskScore
from evaluation.metrics.labels import roc_auc
from revelator.rows import Row, read_split, sample_rows, verify_set
from revelator.tasks import TASKS
from serving.models.engine import Engine
from serving.models.local import complete
from serving.protocols import Completion

BATCH = 32


def pinned_rows(set_folder: Path, split: str, limit: int) -> list[Row]:
    """`limit` rows a task of a verified set."""
    verify_set(set_folder)
    return sample_rows(read_split(set_folder, split), limit)


def score(engine: Engine, rows: Sequence[Row], progress: Progress | None = None, title: str = "") -> Scores:
    """Scores by task; tasks without a row are left out. As a server writes, in batches of rows of like length."""
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    return {task: _score_task(engine, task, own, progress, title) for task, own in by_task.items()}


def _score_task(engine: Engine, task: str, rows: list[Row], progress: Progress | None, title: str) -> TaskScore:
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


def _row_values(rows: Sequence[Row], done: Sequence[Completion]) -> dict[str, tuple[float, ...]]:
    each = [row_values(row, completion.text) for row, completion in zip(rows, done, strict=True)]
    return {name: tuple(float(row[name]) for row in each) for name in each[0]}


def progress_bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
