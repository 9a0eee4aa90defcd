"""`revelator evaluate` and `revelator promote`: score adapters on a pinned slice; move the alias behind the gate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from evaluation.gate import RULES, Verdict, as_text, judge, read_rules, verdict_table
from evaluation.scores import Scores, score_table
from revelator import registry
from revelator.artifact import read_manifest
from revelator.errors import ArtifactError, ConfigError, GateRefused
from revelator.registry import CHAMPION, NAME, Version, home_folder

if TYPE_CHECKING:
    from training.instructions import Instruction

FOLDER = click.Path(path_type=Path)
SET = click.option("--set", "set_folder", type=FOLDER, help="Instruction set.  [default: the one it was trained on]")
SPLIT = click.option("--split", default="dev", show_default=True, type=click.Choice(["train", "dev", "test"]))
LIMIT = click.option("--limit", default=200, show_default=True, type=click.IntRange(1), help="Rows a task.")
BASE = click.option("--base", help="Overrides the base that the adapter's manifest names.")
THREADS = click.option("--threads", type=click.IntRange(1), help="Threads of the model.")
HOME = click.option("--home", type=FOLDER, default=home_folder, help="[env: REVELATOR_HOME; default: runs]")
URI = click.option("--tracking-uri", help="MLflow.  [env: MLFLOW_TRACKING_URI; default: HOME/mlflow.db]")
REGISTERED = click.option("--name", default=NAME, show_default=True, help="Registered model.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")


@click.command()
@click.argument("adapter", default=CHAMPION)
@SET
@SPLIT
@LIMIT
@BASE
@THREADS
@REGISTERED
@HOME
@URI
@AS_JSON
def evaluate(
    adapter: str,
    set_folder: Path | None,
    split: str,
    limit: int,
    base: str | None,
    threads: int | None,
    name: str,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Print an adapter's scores, task by task.

    ADAPTER is a folder, a version number, `latest`, an alias (default: champion), or `base` for the base alone.

    \b
    Examples:
      revelator evaluate --set runs/demo/sets/world
      revelator evaluate 3 --split test --limit 500 --json
      revelator evaluate runs/adapters/mine --set runs/mine/set
      revelator evaluate base --base tiny --set runs/demo/sets/world
    """
    folder, tags = adapter_folder(adapter, name, home, tracking_uri)
    from evaluation.scoring import pinned_rows

    rows = pinned_rows(_set_folder(set_folder, tags), split, limit)
    scores = _scored(folder, base, rows, threads, f"{adapter}: ")
    if as_json:
        click.echo(json.dumps({task: {"n": s.n, **s.scores} for task, s in scores.items()}))
    else:
        Console().print(score_table(scores, f"{adapter} on {split}"))


def adapter_folder(adapter: str, name: str, home: Path, tracking_uri: str | None) -> tuple[Path | None, dict[str, str]]:
    """The folder that a command's ADAPTER names, and its version's tags; no folder for `base`."""
    if Path(adapter).is_dir():
        return Path(adapter), {}
    if adapter == "base":
        return None, {}
    registry.connect(tracking_uri, home)
    version = registry.resolve(name, adapter)
    return _fetched(version, home), version.tags


@click.command()
@REGISTERED
@click.option("--version", "number", default="latest", show_default=True, help="The challenger: a number or `latest`.")
@SET
@SPLIT
@LIMIT
@click.option("--margin", type=click.FloatRange(0, 1), help="How far a task may fall.  [default: 0.02, from --rules]")
@click.option("--rules", type=FOLDER, default=RULES, help="Margin and floors.  [default: evaluation/gate.yaml]")
@click.option("--floors-only", is_flag=True, help="Leave the champion out, for one that cannot be loaded any more.")
@click.option("--dry-run", is_flag=True, help="Score and judge; move nothing.")
@BASE
@THREADS
@HOME
@URI
@AS_JSON
def promote(
    name: str,
    number: str,
    set_folder: Path | None,
    split: str,
    limit: int,
    margin: float | None,
    rules: Path,
    floors_only: bool,
    dry_run: bool,
    base: str | None,
    threads: int | None,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Score a challenger and the champion on the same rows, and make the challenger champion if no task falls.

    Exit status 1, with the table of scores, when the gate refuses.

    \b
    Examples:
      revelator promote
      revelator promote --version 4 --set runs/mine/set --limit 500
      revelator promote --dry-run --json
    """
    rule = read_rules(rules, margin)
    registry.connect(tracking_uri, home)
    challenger, champion = registry.resolve(name, number), registry.champion(name)
    if champion and champion.version == challenger.version:
        return _report(
            as_json,
            f"version {challenger.version} is the champion already",
            {"version": champion.version, "moved": False},
        )
    from evaluation.scoring import pinned_rows

    folder = _set_folder(set_folder, challenger.tags)
    rows = pinned_rows(folder, split, limit)
    rival = None if floors_only else champion
    theirs = _champions(rival, home, base, rows, threads) if rival else None
    ours = _scored(_fetched(challenger, home), base, rows, threads, f"version {challenger.version}: ")
    verdict = judge(ours, theirs, rule)
    about = Promotion(challenger, champion, folder, split, len(rows))
    table = verdict_table(verdict, f"version {challenger.version}", f"champion {rival.version}" if rival else None)
    if verdict.passed:
        Console(stderr=as_json).print(table)
    if not verdict.passed:
        if as_json:
            click.echo(json.dumps(_summary(about, verdict, moved=False)))
        hint = "the alias stays where it is; train longer or on more data, or see --margin and --rules"
        raise GateRefused("; ".join(verdict.refusals), table=as_text(table), hint=hint)
    if dry_run:
        return _report(as_json, "the gate is open; --dry-run moves nothing", _summary(about, verdict, moved=False))
    _move(about, verdict, ours, theirs)
    was = f", in place of version {champion.version}" if champion else ""
    store = f" --tracking-uri {tracking_uri}" if tracking_uri else ""
    text = f"version {challenger.version} is champion{was}\nnext: revelator deploy --home {home}{store}"
    _report(as_json, text, _summary(about, verdict, moved=True))


@dataclass(frozen=True)
class Promotion:
    challenger: Version
    champion: Version | None
    set_folder: Path
    split: str
    rows: int


def _move(about: Promotion, verdict: Verdict, ours: Scores, theirs: Scores | None) -> None:
    """Records scores and both versions in an MLflow run, then moves the alias: a kill in between moves nothing."""
    import mlflow

    replaced = str(about.champion.version) if about.champion else "none"
    with mlflow.start_run(run_name=f"promote-{about.challenger.version}") as run:
        mlflow.set_tags({"kind": "promotion", "challenger": str(about.challenger.version), "replaces": replaced})
        mlflow.log_params({"set": str(about.set_folder), "split": about.split, "rows": about.rows})
        for side, scores in (("challenger", ours), ("champion", theirs or {})):
            for task, own in scores.items():
                mlflow.log_metrics({f"{side}/{task}_{name}": value for name, value in own.scores.items()})
        mlflow.log_dict(_summary(about, verdict, moved=True), "verdict.json")
    registry.tag_version(about.challenger, "promotion_run", run.info.run_id)
    registry.set_alias(about.challenger.name, CHAMPION, about.challenger.version)


def _summary(about: Promotion, verdict: Verdict, *, moved: bool) -> dict:
    return {
        "version": about.challenger.version,
        "replaced": about.champion.version if about.champion else None,
        "moved": moved,
        "mean": verdict.challenger_mean,
        "champion_mean": verdict.champion_mean,
        "refusals": verdict.refusals,
        "tasks": {
            c.task: {"score": c.score, "n": c.n, "challenger": c.challenger, "champion": c.champion, "needed": c.bar}
            for c in verdict.comparisons
        },
    }


def _report(as_json: bool, text: str, summary: dict) -> None:
    click.echo(json.dumps(summary) if as_json else text)


def _fetched(version: Version, home: Path) -> Path:
    return registry.download(version, home / "adapters" / f"{version.name}-{version.version}")


def _set_folder(given: Path | None, tags: dict[str, str]) -> Path:
    folder = given or (Path(tags["set_folder"]) if "set_folder" in tags else None)
    if folder is None or not folder.is_dir():
        raise ConfigError(
            f"no instruction set{f' at {folder}' if folder else ''} to score on", hint="give one: --set DIR"
        )
    return folder


def _champions(champion: Version, home: Path, base: str | None, rows: list[Instruction], threads: int | None) -> Scores:
    try:
        return _scored(_fetched(champion, home), base, rows, threads, f"champion {champion.version}: ")
    except ArtifactError as error:
        hint = f"{error.hint or 'mend it'}; or gate the challenger without the champion: --floors-only"
        raise ArtifactError(f"the champion cannot be scored: {error.message}", where=error.where, hint=hint) from error


def _scored(folder: Path | None, base: str | None, rows: list[Instruction], threads: int | None, title: str) -> Scores:
    from evaluation.scoring import progress_bar, score
    from serving.engine import Engine

    named = read_manifest(folder).base_name if folder else "tiny"
    engine = Engine(base or named, folder, threads=threads)
    with progress_bar(Console(stderr=True)) as progress:
        return score(engine, rows, progress, title)
