"""`revelator eval report`: write the page, and log it to MLflow with the figures of every run."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import click

from evaluation.harness.folder import METRICS, QUESTIONS, RUN
from evaluation.report.page import Report, build_report, render_html
from evaluation.report.runs import LoadedRun, load_run_folders
from revelator import registry
from revelator.errors import ConfigError
from revelator.files import write_bytes
from revelator.options import AS_JSON, HOME, PATH
from revelator.registry import DIGEST_TAG, NAME, Version

PAGE = "report.html"
REPORT_TAG = "evaluation_report"  # of a registered version: the MLflow run that holds its latest report
METRIC_ENDINGS = {"value": "", "low": "_low", "high": "_high", "n": "_n"}


@click.command()
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--out", required=True, type=PATH, help="Folder of the page.")
@click.option("--against", help="System that the others are compared with.  [default: the first of each benchmark]")
@click.option("--mlflow/--no-mlflow", default=True, show_default=True, help="Log runs and page to MLflow.")
@HOME
@AS_JSON
def report(
    runs: tuple[Path, ...],
    out: Path,
    against: str | None,
    mlflow: bool,
    home: Path,
    as_json: bool,
) -> None:
    """Write one self-contained HTML page of RUNS.

    RUNS are folders of `revelator eval run`, in the order of the tables. For each benchmark the page says in one
    sentence what follows from the comparison, and has tables with intervals, paired differences, charts, the worst and
    the most different questions with two plans side by side, and how to repeat each run. The page loads nothing from a
    network. Figures and page are logged to MLflow, under the registered version that a run measured.

    \b
    Examples:
      revelator eval report runs/eval/* --out runs/report
      revelator eval report runs/eval/auto runs/eval/naive-rag --against auto --out runs/report
      revelator eval report runs/eval/auto --out runs/report --no-mlflow --json
    """
    # `*` names the report of `eval run` beside the runs that it compares, too
    loaded = load_run_folders([run for run in runs if run.name != PAGE])
    if not loaded:
        raise ConfigError("no run is named", where="RUNS", hint="name folders of revelator eval run")
    if against and against not in {run.name for run in loaded}:
        known = ", ".join(dict.fromkeys(run.name for run in loaded))
        raise ConfigError(f"no run of a system {against!r}", where="--against", hint=f"systems: {known}")
    built = write_report(loaded, out, against)
    run_id, versions = "", list[int]()
    if mlflow:
        registry.connect(home)
        run_id, versions = log_report(built, loaded, out)
    conclusions = {section.name: section.conclusion for section in built.sections}
    if as_json:
        seen = {run.title: run.seen.to_json() for run in loaded}
        without_gold = {run.title: run.run.without_gold for run in loaded if run.run.without_gold}
        written = {"page": str(out / PAGE), "run_id": run_id, "versions": versions, "conclusions": conclusions}
        click.echo(json.dumps(written | {"seen": seen, "without_gold": without_gold}))
        return
    for section in built.sections:
        click.echo(f"{section.name}: {section.conclusion}\n{section.about}")
    click.echo(f"page: {out / PAGE}")
    if mlflow:
        under = ", ".join(f"{NAME} version {version}" for version in versions) or f"no version of {NAME}"
        click.echo(f"MLflow: run {run_id}, figures under {under}")


def write_report(runs: Sequence[LoadedRun], out: Path, against: str | None = None) -> Report:
    """Writes the page of `runs` into `out`, with the command that this process runs."""
    built = build_report(
        runs,
        against=against,
        command=shlex.join(["revelator", *sys.argv[1:]]),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=metadata.version("revelator"),
    )
    write_bytes(out / PAGE, render_html(built).encode())
    return built


def log_report(built: Report, runs: Sequence[LoadedRun], out: Path) -> tuple[str, list[int]]:
    """Log the page in `out` and, nested below, each run. What follows from the runs is the description
    of the MLflow run. `registry.connect` comes first.

    Return the id of the MLflow run, and the versions of the registered model that figures were logged under.
    """
    import mlflow
    from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

    versions = registry.search_versions(NAME)
    with registry.store_errors(), mlflow.start_run(run_name=f"report-{out.name}") as parent:
        mlflow.set_tags({"kind": "report", "command": built.command[:4000]})
        mlflow.set_tag(MLFLOW_RUN_NOTE, "\n\n".join(f"{part.name}: {part.conclusion}" for part in built.sections))
        measured = {run.folder: _find_measured_version(run, versions) for run in runs}
        for run in runs:
            _log_run(run, measured[run.folder])
        mlflow.log_artifact(str(out / PAGE))
        found = {version.version: version for version in measured.values() if version}
        for version in found.values():
            registry.tag_version(version, REPORT_TAG, parent.info.run_id)
    return str(parent.info.run_id), sorted(found)


def _log_run(run: LoadedRun, version: Version | None) -> None:
    import mlflow

    about = run.run
    with mlflow.start_run(run_name=run.title[:250], nested=True):
        mlflow.set_tags(
            {
                "kind": "evaluation",
                "benchmark": run.benchmark,
                "system": run.name,
                "config_hash": about.config_hash,
                "version": str(version.version) if version else "",
                "seen": str(run.seen)[:4000],
                "machine": about.machine,
                "command": about.command[:4000],
            }
        )
        mlflow.log_params({name: str(value)[:500] for name, value in about.config.items()} | {"seed": about.seed})
        figures = {_name_metric(name): estimate for name, estimate in run.figures.items()}
        mlflow.log_metrics(
            {f"{name}{end}": figures[name][part] for name in figures for part, end in METRIC_ENDINGS.items()}
        )
        if version and version.model_id:  # it has several runs: there each metric also names its benchmark and system
            place = f"{_name_metric(run.benchmark)}/{_name_metric(run.name)}"
            own = {f"{place}/{name}": estimate["value"] for name, estimate in figures.items()}
            mlflow.log_metrics(own, model_id=version.model_id)
        for file in (RUN, METRICS, QUESTIONS):
            mlflow.log_artifact(str(run.folder / file), "run")


def _name_metric(name: str) -> str:
    """MLflow allows no `@` in the name of a metric."""
    return re.sub(r"[^\w./ -]", "_at_" if "@" in name else "_", name)


def _find_measured_version(run: LoadedRun, versions: Sequence[Version]) -> Version | None:
    """The registered version whose manifest is that of the run's adapter."""
    manifest = run.run.adapter.get("manifest")
    return next((version for version in versions if manifest and version.tags.get(DIGEST_TAG) == manifest), None)
