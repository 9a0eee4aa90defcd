"""Runs as they were read for a report: grouped by benchmark, named, compared question by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.harness.folder import QuestionRow, Run, read_metrics, read_questions, read_run
from evaluation.metrics.bootstrap import bootstrap
from evaluation.report.charts import Figure, Series
from revelator.errors import ConfigError
from revelator.files import sha256_text

MEASURES = {
    "em": "EM",
    "acc": "Acc",
    "f1": "F1",
    "ndcg@10": "nDCG@10",
    "recall": "recall",
    "valid": "plan valid",
    "letters": "plan letters",
}
COSTS = {
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "generator_calls": "generator calls",
    "model_calls": "revelator prompts",
    "retrievals": "retrievals",
    "steps": "steps",
    "wall_s": "wall, s",
    "path_s": "critical path, s",
}
QUALITY = ("f1", "ndcg@10", "recall", "letters")  # the first that a run has is what its plots show


@dataclass(frozen=True)
class Loaded:
    """One run: its record, its rows in the order of its ids, its metrics, and its place in every legend."""

    folder: Path
    run: Run
    rows: list[QuestionRow]
    metrics: dict[str, Any]
    series: Series

    @property
    def name(self) -> str:
        return self.series.name

    @property
    def benchmark(self) -> str:
        return str(self.run.benchmark["name"])

    @property
    def card(self) -> str:
        """The id of the part of a page that says how this run is made again."""
        return f"run-{self.series.number}-{sha256_text(str(self.folder.resolve()))[:8]}"

    @property
    def figures(self) -> dict[str, Figure]:
        return self.metrics["figures"]

    @property
    def tokens(self) -> Figure:
        """Tokens in and out together, a question."""
        return figure([row.cost.tokens_in + row.cost.tokens_out for row in self.rows if row.counted])


def load(folders: Sequence[Path]) -> list[Loaded]:
    """What lies in the folders. ArtifactError for one that is no run or not whole; ConfigError for one named twice."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("a run is named twice", hint="name each folder once")
    read = [(folder, read_run(folder)) for folder in folders]
    names = _names([run for _, run in read])
    whole = [name for (_, run), name in zip(read, names, strict=True) if not run.ablation]  # these first: see plotted
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*whole, *names]))}
    return [
        Loaded(folder, run, read_questions(folder, run), read_metrics(folder), Series(name, numbers[name]))
        for (folder, run), name in zip(read, names, strict=True)
    ]


def _names(runs: Sequence[Run]) -> list[str]:
    """The system of each run; where two of one benchmark have the same, what tells them apart stands behind it."""
    names = [run.name for run in runs]
    keys = [(run.benchmark["name"], name) for run, name in zip(runs, names, strict=True)]
    return [
        f"{name} · {run.generator or 'embedded'} {run.config_hash[:6]}" if keys.count(key) > 1 else name
        for run, name, key in zip(runs, names, keys, strict=True)
    ]


def by_benchmark(runs: Sequence[Loaded]) -> list[tuple[str, list[Loaded]]]:
    names = dict.fromkeys(run.benchmark for run in runs)
    return [(name, [run for run in runs if run.benchmark == name]) for name in names]


def quality(runs: Sequence[Loaded]) -> str:
    """The measure that all of these runs have and their plots show."""
    return next((name for name in QUALITY if all(name in run.figures for run in runs)), "complete")


def measure_name(measure: str) -> str:
    return MEASURES.get(measure) or COSTS.get(measure) or measure


def figure(values: Sequence[float]) -> Figure:
    found = bootstrap(values)
    return {"n": found.n, "value": found.mean, "low": found.low, "high": found.high}


def differences(run: Loaded, reference: Loaded, measures: Sequence[str]) -> dict[str, Figure]:
    """Paired: of the questions that both have, `run` less `reference`, for each measure that both score."""
    theirs = {row.id: row for row in reference.rows}
    pairs = [(row, theirs[row.id]) for row in run.rows if row.id in theirs]
    found = {}
    for measure in measures:
        values = [(value_of(one, measure), value_of(other, measure)) for one, other in pairs]
        both = [ours - other for ours, other in values if ours is not None and other is not None]
        if both:
            found[measure] = figure(both)
    return found


def value_of(row: QuestionRow, measure: str) -> float | None:
    """A score or a cost of a row, None where it has none; an answer score of a question that was refused is 0."""
    if measure == "model_calls":
        return float(sum(row.cost.model_calls.values())) if row.counted else None
    if measure in COSTS:
        return float(getattr(row.cost, measure)) if row.counted else None
    refused = 0.0 if row.status == "error" and measure in ("em", "acc", "f1") else None
    return row.scores.get(measure, refused)
