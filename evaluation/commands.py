"""`revelator model grade`: scores of an adapter on a pinned slice; and what it shares with `model promote`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from evaluation.adapters.scores import Scores, score_table
from revelator import registry
from revelator.artifact import read_manifest
from revelator.errors import ConfigError
from revelator.registry import CHAMPION, NAME, Version, home_folder

if TYPE_CHECKING:
    from revelator.rows import Row

FOLDER = click.Path(path_type=Path)
SET = click.option("--set", "set_folder", type=FOLDER, help="Instruction set.  [default: the one it was trained on]")
SPLIT = click.option("--split", default="dev", show_default=True, type=click.Choice(["train", "dev", "test"]))
LIMIT = click.option("--limit", default=400, show_default=True, type=click.IntRange(1), help="Rows a task.")
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
def grade(
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
      revelator model grade --set runs/demo/sets/world
      revelator model grade 3 --split test --limit 500 --json
      revelator model grade runs/adapters/mine --set runs/mine/set
      revelator model grade base --base tiny --set runs/demo/sets/world
    """
    folder, tags = adapter_folder(adapter, name, home, tracking_uri)
    from evaluation.adapters.scoring import pinned_rows

    rows = pinned_rows(named_set(set_folder, tags), split, limit)
    scores = scored(folder, base, rows, threads, f"{adapter}: ")
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
    registry.connect(tracking_uri, home, must_exist=True)
    version = registry.resolve(name, adapter)
    return fetched(version, home), version.tags


def fetched(version: Version, home: Path) -> Path:
    return registry.download(version, home / "adapters" / f"{version.name}-{version.version}")


def named_set(given: Path | None, tags: dict[str, str]) -> Path:
    folder = given or (Path(tags["set_folder"]) if "set_folder" in tags else None)
    if folder is None or not folder.is_dir():
        raise ConfigError(
            f"no instruction set{f' at {folder}' if folder else ''} to score on", hint="give one: --set DIR"
        )
    return folder


def scored(folder: Path | None, base: str | None, rows: list[Row], threads: int | None, title: str) -> Scores:
    from evaluation.adapters.scoring import progress_bar, score
    from serving.models.engine import Engine

    named = read_manifest(folder).base_name if folder else "tiny"
    engine = Engine(base or named, folder, threads=threads)
    with progress_bar(Console(stderr=True)) as progress:
        return score(engine, rows, progress, title)
