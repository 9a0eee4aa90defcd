"""Describes models and index of a run by version and digest, for its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evaluation.harness.config import GOLD, RunConfig
from evaluation.harness.system_needs import JUDGED, choose_adapter, choose_judge, needs_index, needs_revelator
from revelator.artifact import find_base, require_task
from revelator.errors import ArtifactError, ServingError
from revelator.files import sha256_file
from serving.home.config import read_serving
from serving.home.running import find_running_server
from serving.knowledge.config import read_sources
from serving.models.adapters import find_adapter
from serving.models.releases import REVELATOR, name_version
from serving.retrieval.places import IndexAddress, identify_index, read_address
from serving.service.control import open_control


def describe_system(config: RunConfig) -> dict[str, Any]:
    """Describes `adapter`, `index` and `generator` of a run by version and digest. Raises ArtifactError for a
    folder that is no index, and Unavailable if no server answers."""
    if config.url:
        return _describe_served(config)
    return {
        "adapter": describe_planner(config) | describe_judge(config) if needs_revelator(config) else {},
        "index": _identify_index(config) if needs_index(config) else {},
        "generator": name_generator(config),
    }


def _identify_index(config: RunConfig) -> dict[str, Any]:
    return {"folder": GOLD} if config.index == GOLD else identify_index(read_address(config.index))


def name_generator(config: RunConfig) -> str:
    if config.writer:
        return f"{config.writer.model} at {config.writer.url}"
    return "revelator" if config.generator else "embedded"


def describe_planner(config: RunConfig) -> dict[str, str]:
    """The endpoint that plans, or version, manifest and base of the adapter."""
    if config.planner:
        return {"planner": str(config.planner)}
    found = find_adapter(config.adapter, Path(config.home))
    if config.sources and (config.ablation.select or read_sources(Path(config.sources)).select) == "revelator":
        require_task("select", find_base(config.base or found.base_name), found.folder)
    if config.generator == "revelator":
        require_task("read", find_base(config.base or found.base_name), found.folder)
    version = str(found.version.version) if found.version else "" if found.folder else "base"
    made = sha256_file(found.folder / "manifest.json") if found.folder else ""
    return {"version": version, "manifest": made, "base": Path(config.base or found.base_name).name}


def describe_judge(config: RunConfig) -> dict[str, str]:
    """Who judges documents, where that is not the adapter that plans."""
    setting = choose_judge(config)
    if config.system.name not in JUDGED or (setting == "embedded" and not config.planner):
        return {}
    return {"judge": choose_adapter(config) if setting == "embedded" else str(setting)}


def _describe_served(config: RunConfig) -> dict[str, Any]:
    """Asks the server for its version. Planner, index and reader are read in the run's home folder, where that is what
    the server serves: a server tells them to nobody."""
    home = Path(config.home)
    running = find_running_server(home)
    served = read_serving(home) if running and running.grpc == config.url else None
    with open_control(config.url) as client:
        models = client.get_model_repository_index(as_json=True).get("models", [])
    adapter = {"version": ", ".join(name_version(model["version"]) for model in models if model["name"] == REVELATOR)}
    if served is None:
        return {"adapter": adapter, "index": {}, "generator": f"that of {config.url}"}
    return {
        "adapter": {"planner": str(served.planner)} if served.planner else adapter,
        "index": _identify_served(served.index or Path()),
        "generator": served.reader,
    }


def _identify_served(address: IndexAddress) -> dict[str, Any]:
    """Where the index of a server stands, and what it holds if it is there."""
    try:
        return identify_index(address)
    except (ArtifactError, ServingError):
        return {"folder": str(address)}
