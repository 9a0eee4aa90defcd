"""A report in MLflow: each run with its figures under the registered version that it measured, the page beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evaluation.harness.folder import METRICS, QUESTIONS, RUN
from evaluation.report.page import Report, Sheet
from evaluation.report.runs import Loaded
from revelator import registry
from revelator.registry import DIGEST_TAG, Version

REPORT_TAG = "evaluation_report"  # of a registered version: the MLflow run that holds its latest report


def log(report: Report, runs: Sequence[Loaded], out: Path, name: str) -> tuple[str, list[int]]:
    """Logs `out`'s page and summary, the tables and each run, nested below one MLflow run; its id, and the versions of
    the registered model `name` that the figures now stand under. `registry.connect` comes first."""
    import mlflow

    versions = _versions(name)
    with registry.store_errors(), mlflow.start_run(run_name=f"report-{out.name}") as parent:
        mlflow.set_tags({"kind": "report", "command": report.command[:4000]})
        for sheet, place in _sheets(report):
            mlflow.log_table(_columns(sheet), f"tables/{place}.json")
        found = {run.folder: _version(run, versions) for run in runs}
        for run in runs:
            _log_run(run, found[run.folder])
        mlflow.log_artifacts(str(out))
        measured = {version.version: version for version in found.values() if version}
        for version in measured.values():
            registry.tag_version(version, REPORT_TAG, parent.info.run_id)
    return str(parent.info.run_id), sorted(measured)


def _log_run(run: Loaded, version: Version | None) -> None:
    import mlflow

    about = run.run
    with mlflow.start_run(run_name=f"{run.name} on {run.benchmark}"[:250], nested=True):
        mlflow.set_tags(
            {
                "kind": "evaluation",
                "benchmark": run.benchmark,
                "system": run.name,
                "config_hash": about.config_hash,
                "version": str(version.version) if version else "",
                "machine": about.machine,
                "command": about.command[:4000],
            }
        )
        mlflow.log_params({name: str(value)[:500] for name, value in about.config.items()} | {"seed": about.seed})
        figures = {_key(name): figure for name, figure in run.figures.items()}
        flat = {f"{name}{end}": figure[part] for name, figure in figures.items() for part, end in _PARTS.items()}
        mlflow.log_metrics(flat)
        if model := _model_id(version):  # its own names there: a version has several runs
            place = f"{_key(run.benchmark)}/{_key(run.name)}"
            own = {f"{place}/{name}": figure["value"] for name, figure in figures.items()}
            mlflow.log_metrics(own, model_id=model)
        for file in (RUN, METRICS, QUESTIONS):
            mlflow.log_artifact(str(run.folder / file), "run")


_PARTS = {"value": "", "low": "_low", "high": "_high", "n": "_n"}


def _key(name: str) -> str:
    """MLflow's names of metrics have no `@`."""
    return re.sub(r"[^\w./ -]", "_at_" if "@" in name else "_", name)


def _versions(name: str) -> list[Version]:
    with registry.store_errors():
        known = registry.client().search_model_versions(f"name='{name}'")
    return [Version(name, int(v.version), v.tags.get("run_id", ""), v.source or "", dict(v.tags)) for v in known]


def _version(run: Loaded, versions: Sequence[Version]) -> Version | None:
    """The registered version whose manifest is that of the run's adapter."""
    manifest = run.run.adapter.get("manifest")
    return next((version for version in versions if manifest and version.tags.get(DIGEST_TAG) == manifest), None)


def _model_id(version: Version | None) -> str | None:
    found = re.search(r"\bm-[0-9a-f]{16,}\b", version.source) if version else None
    return found[0] if found else None


def _sheets(report: Report) -> list[tuple[Sheet, str]]:
    found = [
        (sheet, f"{section.name}-{number}")
        for section in report.sections
        for number, sheet in enumerate(section.sheets)
    ]
    found += [(report.costs, "cost")] if report.costs else []
    return [(sheet, re.sub(r"[^\w.-]+", "-", place)) for sheet, place in found]


def _columns(sheet: Sheet) -> dict[str, list[str]]:
    return {head: [row[place] for row in sheet.cells] for place, head in enumerate(sheet.head)}
