"""The adapter that a command names, and the engine that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from revelator import registry
from revelator.artifact import DEFAULT_BASE, read_manifest
from revelator.registry import NAME, Version

if TYPE_CHECKING:
    from serving.models.engine import Engine


@dataclass(frozen=True)
class Adapter:
    """The adapter that a command names. `folder` is None for the base alone, `version` is None for a plain folder."""

    folder: Path | None
    version: Version | None = None

    @property
    def tags(self) -> dict[str, str]:
        return self.version.tags if self.version else {}

    @property
    def base_name(self) -> str:
        """The base that the adapter was trained on; without an adapter, the embedded base."""
        return read_manifest(self.folder).base_name if self.folder else DEFAULT_BASE


def find_adapter(adapter: str, home: Path) -> Adapter:
    """Finds what ADAPTER names: a folder, a version number, `latest`, an alias, or `base`."""
    if Path(adapter).is_dir():
        return Adapter(Path(adapter))
    if adapter == "base":
        return Adapter(None)
    registry.connect(home, must_exist=True)
    return fetch_version(registry.resolve(NAME, adapter), home)


def fetch_version(version: Version, home: Path) -> Adapter:
    """Downloads a registered version into the home folder."""
    return Adapter(registry.fetch(version, home), version)


def open_engine(adapter: Adapter, base: str | None = None) -> Engine:
    """Loads the adapter on its base, or on `base`."""
    from serving.models.engine import Engine

    return Engine(base or adapter.base_name, adapter.folder)
