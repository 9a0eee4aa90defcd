"""Load the runs of a report, and compare them question by question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.harness.folder import QuestionRow, Run, read_metrics, read_questions, read_run
from evaluation.harness.run_metrics import MEASURES, measure_row
from evaluation.metrics.bootstrap import bootstrap
from evaluation.seen import SeenCount, warn_of_seen
from revelator.errors import ConfigError
from revelator.files import sha256_text

FEW = 30  # questions: below it a difference is rarely told from chance
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
    def is_bound(self) -> bool:
        """Whether the system was given gold, so that it competes with none."""
        return self.run.system["kind"] == "bound"

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
            "index": f"{index['count']:,} passages, {index['digest'][:16]}"
            if index.get("digest")
            else index.get("folder", "none"),
            "generator": run.generator or "none",
            "code": run.code[:16],
            "seed": str(run.seed),
            "machine": run.machine,
            "started": run.started,
        }

    @property
    def seen(self) -> SeenCount:
        return self.count_seen(self.rows)

    def count_seen(self, rows: Iterable[QuestionRow]) -> SeenCount:
        """How many of these rows of the run its models have seen in training."""
        return SeenCount.of((row.seen for row in rows), self.run.unknown)

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


def load_run_folders(folders: Sequence[Path], names: Sequence[str] | None = None) -> list[LoadedRun]:
    """Read every folder. `names` are what the runs are called, in place of their systems. Raise ArtifactError for a
    folder that is not a complete run, ConfigError for a duplicate."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("a run is named twice", hint="name each folder once")
    runs = [read_run(folder) for folder in folders]
    names = names or _name_runs(runs, folders)
    without_ablation = [name for run, name in zip(runs, names, strict=True) if not run.ablation]
    # Systems without ablations get the first numbers: in a report of many runs the charts show only them.
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*without_ablation, *names]))}
    return [
        LoadedRun(folder, run, read_questions(folder, run), read_metrics(folder), Series(name, numbers[name]))
        for folder, run, name in zip(folders, runs, names, strict=True)
    ]


def _name_runs(runs: Sequence[Run], folders: Sequence[Path]) -> list[str]:
    """The system of each run. Runs of one system on one benchmark are called by their folders; where these have one
    name, too, the configuration tells them."""
    systems = [(run.benchmark["name"], run.name) for run in runs]
    called = [(*system, folder.resolve().name) for system, folder in zip(systems, folders, strict=True)]
    names = []
    for run, system, key in zip(runs, systems, called, strict=True):
        more = f" {run.config_hash[:6]}" if called.count(key) > 1 else ""
        names.append(f"{key[-1]}{more}" if systems.count(system) > 1 else run.name)
    return names


def group_by_benchmark(runs: Sequence[LoadedRun]) -> dict[str, list[LoadedRun]]:
    names = dict.fromkeys(run.benchmark for run in runs)
    return {name: [run for run in runs if run.benchmark == name] for name in names}


def choose_main_measure(runs: Sequence[LoadedRun]) -> str:
    """The measure of quality that all of these runs have."""
    return next((name for name in MAIN_MEASURES if all(name in run.figures for run in runs)), "answered")


def pair_rows(run: LoadedRun, reference: LoadedRun) -> list[tuple[QuestionRow, QuestionRow]]:
    """The rows of the questions of both."""
    rows = {row.id: row for row in reference.rows}
    return [(row, rows[row.id]) for row in run.rows if row.id in rows]


def count_seen_by_either(run: LoadedRun, reference: LoadedRun) -> SeenCount:
    """How many of the questions of both runs a model of either has seen in training."""
    both = [(row.seen, other.seen) for row, other in pair_rows(run, reference)]
    seen = [None if ours is None or theirs is None else theirs | ours for ours, theirs in both]
    return SeenCount.of(seen, (*run.run.unknown, *reference.run.unknown))


def compare_runs(run: LoadedRun, reference: LoadedRun, measures: Iterable[str]) -> dict[str, Estimate]:
    """The mean of `run` minus `reference` over the questions of both, for each measure that both score."""
    pairs = pair_rows(run, reference)
    found: dict[str, Estimate] = {}
    for measure in measures:
        values = [(measure_row(row, measure), measure_row(other, measure)) for row, other in pairs]
        differences = [ours - theirs for ours, theirs in values if ours is not None and theirs is not None]
        if differences:
            found[measure] = bootstrap(differences).to_json()
    return found


def conclude(reference: LoadedRun, others: Sequence[LoadedRun], measure: str) -> str:
    """What follows from the paired differences of `measure` to the reference, in one sentence with the 95 % interval of
    the best of the others. A bound, which is given gold, and a system with a part switched off are not among these if
    there are any others. A sentence more for each run of which questions ended in an error, for they count as wrong,
    and a warning where systems are compared on questions that models have seen in training."""
    runs = [reference, *others]
    warning = warn_of_seen({run.name: run.seen for run in runs}) if others else ""
    return " ".join(filter(None, [_conclude(reference, others, measure), *map(_describe_errors, runs), warning]))


def _describe_errors(run: LoadedRun) -> str:
    errors = Counter(row.error for row in run.rows if row.status == "error")
    if not errors:
        return ""
    [(commonest, times)] = errors.most_common(1)
    which = "" if len(errors) == 1 else f"{times} times "
    lost = f"{errors.total():,} of {len(run.rows):,} questions ended in an error"
    return f"{run.name}: {lost} and count as wrong ({which}{commonest[:120]})."


def _conclude(reference: LoadedRun, others: Sequence[LoadedRun], measure: str) -> str:
    label = MEASURES[measure]
    own = [run for run in others if not run.is_bound and not run.run.ablation]
    found = {run.name: compare_runs(run, reference, [measure]).get(measure) for run in own or others}
    gaps = {name: gap for name, gap in found.items() if gap}
    if not gaps:
        figure = reference.figures[measure]
        between = f"[{figure['low']:.3f}, {figure['high']:.3f}]"
        more = "no other run has these questions" if others else "there is no other run to compare it with"
        return f"{reference.name} reaches {figure['value']:.3f} {label} {between} on {figure['n']:,} questions; {more}."
    best = max(gaps, key=lambda name: gaps[name]["value"])
    gap, n = gaps[best], int(gaps[best]["n"])
    between = f"{gap['value']:+.3f} {label} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
    if gap["low"] <= 0 <= gap["high"]:
        text = f"These {n:,} questions do not tell {best} from {reference.name}: {between}"
        text += "; ask more questions" if n < FEW else ""
    else:
        verdict = "better" if gap["low"] > 0 else "worse"
        text = f"{best} is {verdict} than {reference.name} on these {n:,} questions: {between}"
    if len(gaps) == 1:
        return f"{text}."
    better, worse = (sum(gap["low"] > 0 for gap in gaps.values()), sum(gap["high"] < 0 for gap in gaps.values()))
    undecided = len(gaps) - better - worse
    return f"{text}; of the {len(gaps)} systems compared: better {better}, worse {worse}, undecided {undecided}."
