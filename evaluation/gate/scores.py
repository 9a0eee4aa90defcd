"""Scores how well an adapter does each task.

Rows are chosen by the hash of their id, so that two adapters that are scored on different days are scored on the same
rows. Outputs are written as a server writes them, one a row, in batches of rows of like length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from rich.progress import Progress
from rich.table import Table

import evaluation
import revelator
import serving
from evaluation.metrics.bootstrap import Interval, bootstrap
from evaluation.metrics.plans import PLAN_MEASURES
from evaluation.rows import progress_bar
from evaluation.seen import SeenCount, TrainedModel, find_seen
from revelator.errors import ConfigError, TaskOutputError
from revelator.files import digest_code, sha256_file, sha256_text, write_json
from revelator.rows import Row, read_split, sample_rows, verify_set
from revelator.scores import NO_ANSWER, normalise, roc_auc, score_answer
from revelator.tasks import TASKS, ReadAnswer, Task
from revelator.tasks.task import UNANSWERABLE
from serving.models.adapters import Adapter, open_engine
from serving.protocols import Completion, Decoding

if TYPE_CHECKING:
    from serving.models.engine import Engine

BATCH = 32
READ = TASKS["read"]
READING_SCORES = ("f1", "em", "answerable")


def _name_deciding_score(task: Task) -> str:
    if task.language:
        return PLAN_MEASURES[task.language.name].deciding
    return "accuracy" if task.labels else "f1" if task is READ else "equal"


ANSWERS = "answers"  # of questions that are asked end to end
REFUSALS = "refusals"  # of those that have no answer
PINNED = "pinned/"  # before the task: scored on the champion's questions
# What the gate compares.
DECIDING = {name: _name_deciding_score(task) for name, task in TASKS.items()} | {ANSWERS: "f1", REFUSALS: "refused"}


@dataclass(frozen=True)
class GradedRow:
    """One row of a set, what the model wrote for it, and `scores` in [0, 1] by name; `probability` is that of the
    task's first label."""

    id: str
    task: str
    gold: str
    output: str
    scores: dict[str, float]
    probability: float | None = None


@dataclass(frozen=True)
class TaskScore:
    """Scores of one task, each in [0, 1]; `values` holds the score of every row in the order of `ids`. `seen` counts
    the rows whose questions a model has seen in training.

    Label tasks: `accuracy`, for two labels also `auc` of the first label's probability (no row values).
    decompose: `equal`, the same parts in any order. refine: `equal`, the same question. Both by SQuAD's normaliser.
    read: `f1` and `em` of the answer, a list's items joined, by HotpotQA's rule; `answerable`, it is told right whether
    the passages answer. translate_bnf, translate_logic, translate_art: those of `evaluation.metrics.plans`.
    answers: `f1` and `em`. refusals: `refused`, no answer was given.
    """

    task: str
    scores: dict[str, float]
    ids: tuple[str, ...]
    values: dict[str, tuple[float, ...]]
    seen: SeenCount = field(default_factory=SeenCount)

    @property
    def n(self) -> int:
        return len(self.ids)

    @property
    def deciding(self) -> float:
        return self.scores[DECIDING[self.task]]

    @property
    def question_ids(self) -> list[str]:
        """The id of each row's question; a row's id reads <question>/<task>/<number>."""
        return [id.rsplit("/", 2)[0] for id in self.ids]

    def to_json(self) -> dict[str, Any]:
        """`n`, every score by its name, the `intervals` of those that every row has, `seen` and `unknown`."""
        intervals = {name: self.compute_interval(name) for name in self.values}
        ends = {name: [interval.low, interval.high] for name, interval in intervals.items()}
        return {"n": self.n, **self.scores, "intervals": ends, **self.seen.to_json()}

    def compute_interval(self, name: str) -> Interval:
        """Returns the 95 % interval of a score that every row has; whole questions are drawn."""
        return bootstrap(self.values[name], groups=self.question_ids)


Scores = dict[str, TaskScore]  # by task, PINNED before those of the champion's questions


def read_pinned_rows(set_folder: Path, split: str, limit: int, source: str | None = None) -> list[Row]:
    """Reads at most `limit` rows of each task from a verified set, the first by the hash of their id; 0 reads all of
    them. Raises ConfigError if no row is from `source`."""
    verify_set(set_folder)
    rows = [row for row in read_split(set_folder, split) if source in (None, row.source)]
    if not rows:
        hint = f"revelator data inspect {set_folder}"
        raise ConfigError(f"no {split} rows of {source}", where="--source", hint=hint)
    return sample_rows(rows, limit or len(rows))


def score_row(row: Row, output: str) -> Mapping[str, float]:
    """Scores the output for one row. The names of the scores are the same for every row of a task."""
    if row.label:
        return {"accuracy": output == row.label}
    task, gold = TASKS[row.task], json.loads(row.gold)
    if task.language:
        score, names = PLAN_MEASURES[task.language.name].score, json.loads(row.entities or "[]")
        return score(output, task.language.parse(gold), task.read_question(row.prompt), names)
    try:
        written = task.parse(output)
    except TaskOutputError:
        return dict.fromkeys(READING_SCORES if task is READ else ("equal",), 0.0)
    if task is READ:
        return _score_answer(written, task.parse(gold))
    return {"equal": _normalise_parts(written) == _normalise_parts(gold)}


def _score_answer(written: ReadAnswer, gold: ReadAnswer) -> dict[str, float]:
    texts = [", ".join(one.answers) or one.verdict.replace(UNANSWERABLE, NO_ANSWER) for one in (written, gold)]
    score = score_answer(texts[0], texts[1:], rule="hotpotqa")
    is_told = (written.verdict == UNANSWERABLE) == (gold.verdict == UNANSWERABLE)
    return dict(zip(READING_SCORES, (score.f1, score.em, float(is_told)), strict=True))


def _normalise_parts(value: str | list[str]) -> list[str]:
    return sorted(map(normalise, [value] if isinstance(value, str) else value))


class Grades:
    """What a model wrote for rows before, in files of `folder`, one a batch, so that two processes may grade at once. A
    row is known by what it asks and by what is right, whichever set it stands in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, GradedRow] = {}
        for path in folder.glob("*.json"):
            batch = json.loads(path.read_text(encoding="utf-8"))
            self._known |= {key: GradedRow(**row) for key, row in batch.items()}

    @classmethod
    def of(cls, engine: Engine, adapter: Adapter, decoding: Decoding, home: Path) -> Grades:
        """The grades of an adapter on its base below `home`. Other code of ours may grade otherwise, and begins
        anew."""
        manifest = sha256_file(adapter.folder / "manifest.json") if adapter.folder else ""
        about = [manifest, engine.base_digest, decoding, digest_code(revelator, serving, evaluation)]
        return cls(home / "gate" / f"rows-{sha256_text(json.dumps(about))[:16]}")

    def find(self, row: Row) -> GradedRow | None:
        known = self._known.get(_identify(row))
        return replace(known, id=row.id) if known else None

    def keep(self, batch: Mapping[str, GradedRow]) -> None:
        write_json(self.folder / f"{uuid4().hex}.json", {key: asdict(row) for key, row in batch.items()})


def _identify(row: Row) -> str:
    return sha256_text(json.dumps([row.prompt, row.gold, row.label, row.entities]))


def grade_rows(
    engine: Engine,
    rows: Sequence[Row],
    progress: Progress | None = None,
    title: str = "",
    *,
    decoding: Decoding = "beams",
    grades: Grades | None = None,
) -> list[GradedRow]:
    """Asks the model for the output of every row and scores it. Rows that `grades` holds are not asked again, and each
    new batch is kept there as soon as it is scored."""
    from serving.models.local import complete

    graded = {row.id: known for row in rows if grades and (known := grades.find(row))}
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    for task, own in by_task.items():
        todo = sorted((row for row in own if row.id not in graded), key=lambda row: len(row.prompt))
        bar = progress.add_task(f"{title}{task}", total=len(own), completed=len(own) - len(todo)) if progress else None
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            completions = complete(engine, task, [row.prompt for row in batch], decoding=decoding)
            new = [grade_row(row, done) for row, done in zip(batch, completions, strict=True)]
            if grades:
                grades.keep({_identify(row): one for row, one in zip(batch, new, strict=True)})
            graded |= {row.id: row for row in new}
            if progress and bar is not None:
                progress.advance(bar, len(batch))
    return [graded[row.id] for row in rows]


def grade_row(row: Row, done: Completion) -> GradedRow:
    """Scores a completion as it is served; the fallback that stands in for a plan is not `valid`."""
    scores = {name: float(value) for name, value in score_row(row, done.text).items()}
    if done.degraded:
        scores["valid"] = 0.0
    first = done.probabilities[(TASKS[row.task].labels or ("",))[0]] if row.label else None
    return GradedRow(row.id, row.task, row.label or row.gold, done.text, scores, first)


def score_tasks(rows: Iterable[GradedRow]) -> Scores:
    """Averages the scores of each task that has rows."""
    by_task: dict[str, list[GradedRow]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    found = {}
    for task, own in by_task.items():
        values = {name: tuple(row.scores[name] for row in own) for name in own[0].scores}
        scores = {name: float(np.mean(each)) for name, each in values.items()}
        if len(labels := TASKS[task].labels or ()) == 2:
            auc = roc_auc([row.probability or 0.0 for row in own], [row.gold == labels[0] for row in own])
            scores |= {} if math.isnan(auc) else {"auc": auc}
        found[task] = TaskScore(task, scores, tuple(row.id for row in own), values)
    return found


def score_adapter(
    adapter: Adapter,
    slices: Mapping[str, Sequence[Row]],
    title: str,
    home: Path,
    base: str | None = None,
    decoding: Decoding = "beams",
) -> Scores:
    """Loads an adapter on its base, or on `base`, grades the rows of each slice and averages the scores of each task;
    the slice's name stands before the task's. Rows that it was graded on before are not asked again: `Grades` keeps
    them below `home`."""
    engine, found = open_engine(adapter, base), Scores()
    model = TrainedModel.read_revelator(adapter.folder, base or adapter.base_name)
    grades = Grades.of(engine, adapter, decoding, home)
    with progress_bar() as progress:
        progress.console.print(f"{title}: {sum(map(len, slices.values())):,} rows → {grades.folder}", highlight=False)
        for name, rows in slices.items():
            graded = grade_rows(engine, rows, progress, f"{title}: {name}", decoding=decoding, grades=grades)
            for task, own in score_tasks(graded).items():
                seen = count_seen(model, [row for row in rows if row.task == task])
                found[f"{name}{task}"] = replace(own, seen=seen)
    return found


def count_seen(model: TrainedModel, rows: Iterable[Row]) -> SeenCount:
    """How many rows are of a question, or ask one, that the model has seen in training."""
    asked = ((row.question, TASKS[row.task].read_question(row.prompt)) for row in rows)
    return SeenCount.of((find_seen([model], texts) for texts in asked), model.fingerprints.unknown)


def build_score_table(scores: Scores, title: str) -> Table:
    table = Table("task", "n", "score", "value", "95 %", "in training", title=title, title_justify="left")
    for task in sorted(scores, key=list(DECIDING).index):
        own = scores[task]
        for name, value in own.scores.items():
            mark = " (decides)" if name == DECIDING[task] else ""
            interval = own.compute_interval(name) if name in own.values else None
            between = f"{interval.low:.3f} to {interval.high:.3f}" if interval else ""
            table.add_row(task, str(own.n), name + mark, f"{value:.3f}", between, str(own.seen))
    return table
