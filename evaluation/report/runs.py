"""Load the runs of a report, and compare them question by question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.harness.folder import QuestionRow, Run, read_metrics, read_questions, read_run
from evaluation.harness.run_metrics import measure_row
from evaluation.metrics.bootstrap import bootstrap
from revelator.errors import ConfigError
from revelator.files import sha256_text

MAIN_MEASURES = ("f1", "ndcg@10", "recall", "letters")  # charts and cases show the first that all runs have

Estimate = Mapping[str, float]  # n, value (the mean), low and high (its 95 % bootstrap interval)


@dataclass(frozen=True)
class Series:
    """A system in the legend. Its number decides its colour and its mark, the same in every chart of a page."""

    name: str
    number: int


@dataclass(frozen=True)
class LoadedRun:
    """One run: its record, its rows in the order of its ids, and its metrics."""

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
    def title(self) -> str:
        return f"{self.name} on {self.benchmark}"

    @property
    def recipe(self) -> dict[str, str]:
        """How to repeat the run."""
        run, adapter, index = self.run, self.run.adapter, self.run.index
        version = f"version {adapter['version']}, " if adapter.get("version") else ""
        made = f"{version}manifest {adapter.get('manifest', '')[:16]}, base {adapter.get('base', '')[:16]}"
        return {
            "command": run.command,
            "config hash": run.config_hash,
            "data": ", ".join(f"{name} {sha[:16]}" for name, sha in run.benchmark.get("files", {}).items()) or "–",
            "adapter": made if adapter.get("manifest") else adapter.get("planner", "none"),
            "index": f"{index['count']:,} passages, {index['digest'][:16]}" if index.get("digest") else "none",
            "generator": run.generator or "none",
            "code": run.code[:16],
            "seed": str(run.seed),
            "machine": run.machine,
            "started": run.started,
        }

    @property
    def anchor(self) -> str:
        """The id of the part of the page that says how to repeat this run."""
        return f"run-{self.series.number}-{sha256_text(str(self.folder.resolve()))[:8]}"

    @property
    def figures(self) -> dict[str, Estimate]:
        return self.metrics["figures"]

    @property
    def tokens(self) -> Estimate:
        """Tokens in and out together, a question."""
        return bootstrap([row.cost.tokens_in + row.cost.tokens_out for row in self.rows if row.has_cost]).to_json()


def load_runs(folders: Sequence[Path]) -> list[LoadedRun]:
    """Read every folder. Raise ArtifactError for a folder that is not a complete run, ConfigError for a duplicate."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("a run is named twice", hint="name each folder once")
    runs = [read_run(folder) for folder in folders]
    names = _name_runs(runs)
    without_ablation = [name for run, name in zip(runs, names, strict=True) if not run.ablation]
    # Systems without ablations get the first numbers: in a report of many runs the charts show only them.
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*without_ablation, *names]))}
    return [
        LoadedRun(folder, run, read_questions(folder, run), read_metrics(folder), Series(name, numbers[name]))
        for folder, run, name in zip(folders, runs, names, strict=True)
    ]


def _name_runs(runs: Sequence[Run]) -> list[str]:
    """The system of each run. Two runs of one system on one benchmark also show their generator and configuration."""
    keys = [(run.benchmark["name"], run.name) for run in runs]
    return [
        f"{run.name} · {run.generator or 'embedded'} {run.config_hash[:6]}" if keys.count(key) > 1 else run.name
        for run, key in zip(runs, keys, strict=True)
    ]


def group_by_benchmark(runs: Sequence[LoadedRun]) -> dict[str, list[LoadedRun]]:
    names = dict.fromkeys(run.benchmark for run in runs)
    return {name: [run for run in runs if run.benchmark == name] for name in names}


def choose_main_measure(runs: Sequence[LoadedRun]) -> str:
    """The measure of quality that all of these runs have."""
    return next((name for name in MAIN_MEASURES if all(name in run.figures for run in runs)), "answered")


def compare_runs(run: LoadedRun, reference: LoadedRun, measures: Iterable[str]) -> dict[str, Estimate]:
    """The mean of `run` minus `reference` over the questions of both, for each measure that both score."""
    rows = {row.id: row for row in reference.rows}
    pairs = [(row, rows[row.id]) for row in run.rows if row.id in rows]
    found: dict[str, Estimate] = {}
    for measure in measures:
        values = [(measure_row(row, measure), measure_row(other, measure)) for row, other in pairs]
        differences = [ours - theirs for ours, theirs in values if ours is not None and theirs is not None]
        if differences:
            found[measure] = bootstrap(differences).to_json()
    return found
