"""Chooses what a home folder serves, of what a start is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from revelator.artifact import DEFAULT_BASE, find_base, require_task
from revelator.errors import ConfigError
from serving.home.config import REVELATOR, ServingConfig, read_serving
from serving.home.versions import ADAPTER, version_folder
from serving.models.releases import VersionContents, read_release
from serving.retrieval.places import IndexAddress, resolve_address


def configure(home: Path, **given: Any) -> ServingConfig:
    """The defaults, with the fields that are `given` in their place; None keeps a default. Cards and processes are
    those of the last `model deploy`. Writes nothing.

    Raises ConfigError for what cannot work, ArtifactError for a release that cannot do what is asked of it.
    """
    placed = read_serving(home)
    changes = {name: value for name, value in given.items() if value is not None}
    changes |= {"gpus": placed.gpus, "instances": placed.instances}
    changes["index"] = _choose_index(home, changes.get("index"))
    if "sources" in changes:
        changes["sources"] = changes["sources"].resolve()
    if "logic" in changes:
        changes["logic"] = changes["logic"].resolve()
    config = ServingConfig(**changes)
    wrong = [name for name in ("text", "own_knowledge") if changes.get(name)]
    if wrong and not config.reads_at_endpoint:
        hint = "give a language model with --generator URL"
        raise ConfigError("the embedded reader writes no answers", where=wrong[0], hint=hint)
    if config.sources:
        _check_selection(config, config.sources)
    for task in _list_tasks(config):
        if release := read_release(home):
            _require_task(task, home, release)
        else:
            require_task(task, find_base(DEFAULT_BASE))
    return config


def _choose_index(home: Path, given: IndexAddress | None) -> IndexAddress:
    """The index that is given, else the only one below the home folder."""
    below = sorted(path.parent for path in (home / "indexes").glob("*/manifest.json"))
    folder = given or (below[0] if len(below) == 1 else None)
    if folder is None:
        found = f"there {f'are {len(below)}' if below else 'is none'} below {home / 'indexes'}"
        hint = f"give one as --index DIR: {', '.join(map(str, below[:5]))}"
        if not below:
            hint = "build one with `revelator index build FILES --out DIR` and give it as --index DIR"
        raise ConfigError(f"which index is to be searched? {found}", where="--index", hint=hint)
    if isinstance(folder, Path) and not (folder / "manifest.json").is_file():
        raise ConfigError("not an index: it has no manifest.json", where=str(folder), hint="give another: --index DIR")
    return resolve_address(folder)


def _check_selection(config: ServingConfig, sources: Path) -> None:
    """Raises ConfigError where nobody is there to select the sources."""
    from serving.knowledge.config import read_sources

    if read_sources(sources).select == "model" and not config.reads_at_endpoint:
        hint = "give a language model with --generator URL, or take select: all"
        raise ConfigError("the embedded reader selects no sources", where=f"{sources}: select", hint=hint)


def check_version(home: Path, contents: VersionContents) -> None:
    """Raises ArtifactError for a version that has not learned what the release is to do beside planning and judging."""
    for task in _list_tasks(read_serving(home)):
        _require_task(task, home, contents)


def _list_tasks(config: ServingConfig) -> list[str]:
    """The tasks beside planning and judging that the settings want of the release."""
    from serving.knowledge.config import read_sources

    if config.planner:
        return []
    selects = config.sources is not None and read_sources(config.sources).select == "revelator"
    return [*["select"] * selects, *["read"] * (config.generator == REVELATOR)]


def _require_task(task: str, home: Path, contents: VersionContents) -> None:
    adapter = version_folder(home, contents.version) / ADAPTER if contents.files else None
    require_task(task, Path(contents.base["folder"]), adapter)
