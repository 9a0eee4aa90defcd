"""`revelator eval report`: runs → one page, one summary, and MLflow."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import click

from evaluation.costs.command import read_times
from evaluation.options import FOLDER, HOME, REGISTERED, URI
from evaluation.report import comparison
from evaluation.report.page import cost_sheet, html, markdown, report_of
from evaluation.report.runs import load
from evaluation.report.sections import put
from evaluation.report.tracking import log
from revelator import registry
from revelator.errors import ConfigError
from revelator.files import write_bytes

PAGE, SUMMARY = "report.html", "report.md"


@click.command()
@click.argument("runs", nargs=-1, required=True, type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder of the page and the summary.")
@click.option("--against", help="System that the others are compared with.  [default: the first of each benchmark]")
@click.option("--times", type=FOLDER, help="File of `revelator eval cost measure`: adds predicted throughput.")
@click.option("--results", type=FOLDER, help="Page that gets systems and switches beside the papers' figures, too.")
@click.option("--mlflow/--no-mlflow", default=True, show_default=True, help="Log runs, tables and page to MLflow.")
@REGISTERED
@HOME
@URI
@click.option("--json", "as_json", is_flag=True, help="Say as JSON what was written.")
def report(
    runs: tuple[Path, ...],
    out: Path,
    against: str | None,
    times: Path | None,
    results: Path | None,
    mlflow: bool,
    name: str,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Write one self-contained HTML page and a Markdown summary of RUNS.

    RUNS are folders of whole runs (`revelator eval run`) and of retrieval alone (`revelator eval recall`), in the
    order of the tables. Of each benchmark: a table with intervals, paired differences, plots, the worst and the most
    different cases with both plans side by side, and how each figure is made again. The page asks for nothing from
    any network. Figures, tables and page are logged to MLflow, under the registered version that a run measured.

    \b
    Examples:
      revelator eval report runs/eval/* --out runs/report
      revelator eval report runs/eval/auto runs/eval/naive-rag --against auto --out runs/report
      revelator eval report runs/eval/auto --out runs/report --no-mlflow --json
      revelator eval report runs/evaluations/compare-*/* --against auto --out runs/report --results docs/results.md
    """
    loaded = load(runs)
    if against and against not in {run.name for run in loaded}:
        known = ", ".join(dict.fromkeys(run.name for run in loaded))
        raise ConfigError(f"no run of a system {against!r}", where="--against", hint=f"systems: {known}")
    command, now = asked(sys.argv[1:], runs), datetime.now(UTC)
    made = report_of(
        loaded,
        against=against,
        command=command,
        made=now.strftime("%Y-%m-%d %H:%M UTC"),
        version=metadata.version("revelator"),
        costs=cost_sheet(loaded, read_times(times)) if times else None,
    )
    if results:
        put(results, comparison.SECTION, comparison.section(loaded, command, now.date().isoformat()))
    write_bytes(out / SUMMARY, markdown(made).encode())
    write_bytes(out / PAGE, html(made).encode())
    run_id, versions = "", list[int]()
    if mlflow:
        registry.connect(tracking_uri, home)
        run_id, versions = log(made, loaded, out, name)
    written = {"page": str(out / PAGE), "summary": str(out / SUMMARY)}
    if as_json:
        click.echo(json.dumps(written | {"run_id": run_id, "versions": versions}))
        return
    click.echo(f"page: {written['page']}\nsummary: {written['summary']}")
    if mlflow:
        under = ", ".join(f"{name} version {version}" for version in versions) or f"no version of {name}"
        click.echo(f"MLflow: run {run_id}, figures under {under}")


def asked(arguments: Sequence[str], runs: Sequence[Path]) -> str:
    """The command as a person types it: `DIR/*` where every run in a folder is named."""
    rest = [text for text in arguments if Path(text) not in runs]
    shown: list[str] = []
    for parent in dict.fromkeys(run.parent for run in runs):
        named = [run for run in runs if run.parent == parent]
        whole = len(named) > 1 and {place.parent for place in parent.glob("*/run.json")} == {*named}
        shown += [f"{shlex.quote(str(parent))}/*"] if whole else [shlex.quote(str(run)) for run in named]
    return " ".join(["revelator", *map(shlex.quote, rest), *shown])
