"""The folders of the revelator's versions below a home folder, `model_repo/revelator/N`, which Triton can load as they
are: an adapter, and `version.json`, which says what belongs together."""

from __future__ import annotations

import json
from pathlib import Path

from revelator.errors import ArtifactError
from serving.models.releases import REVELATOR, VersionContents

ADAPTER = "adapter"
CONTENTS_FILE = "version.json"


def repository_folder(home: Path) -> Path:
    return home / "model_repo"


def version_folder(home: Path, version: int) -> Path:
    return repository_folder(home) / REVELATOR / str(version)


def list_versions(home: Path) -> list[int]:
    """The versions that have a folder, in rising order."""
    folder = repository_folder(home) / REVELATOR
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def require_contents(home: Path, version: int) -> VersionContents:
    """Reads `version.json` of a version. Raises ArtifactError, with what to do, for one that has no folder."""
    folder = version_folder(home, version)
    if found := read_contents(folder):
        return found
    hint = f"deploy it: revelator model deploy --alias {version} --home {home}"
    raise ArtifactError("there is no such version", where=str(folder), hint=hint)


def read_contents(folder: Path) -> VersionContents | None:
    """Reads `version.json` of a version folder; None when there is no such folder."""
    path = folder / CONTENTS_FILE
    return VersionContents(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
