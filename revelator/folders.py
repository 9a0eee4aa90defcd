"""Folders that are built whole: their manifest, whether their files are as they were built, what may be replaced.

`manifest.json` is written last. It names the format of the folder, and the size and the sha256 of every other file;
what else it says is up to the kind of folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_file, sha256_folder, sha256_text, write_json

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FolderKind:
    """`name` is what messages call it, "an index"; `format` stands in its manifest; `command` makes one."""

    name: str
    format: str
    command: str

    def write_manifest(self, folder: Path, about: dict[str, Any]) -> dict[str, Any]:
        """Writes the manifest of the files that are in `folder` now, with `about` in it, and returns it."""
        files = sha256_folder(folder, leave_out=frozenset({MANIFEST}))
        sizes = {name: (folder / name).stat().st_size for name in files}
        manifest = about | {"format": self.format, "files": files, "sizes": sizes}
        write_json(folder / MANIFEST, manifest)
        return manifest

    def find_manifest(self, folder: Path) -> dict[str, Any]:
        """The manifest, {} where the folder has none of this kind."""
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
            is_own = manifest["format"] == self.format and manifest["files"].keys() == manifest["sizes"].keys()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        return manifest if is_own else {}

    def read_manifest(self, folder: Path, *, verify: bool = False) -> dict[str, Any]:
        """Reads the manifest and compares the size of every file; with `verify`, its sha256 too. Raises ArtifactError
        for a folder of another kind or format, and for the first file that is missing or not as it was built."""
        manifest, hint = self.find_manifest(folder), f"make it with `{self.command}`"
        if not manifest:
            reason = f"this is not {self.name}, or one that was not finished: no {MANIFEST} of format {self.format}"
            raise ArtifactError(reason, where=str(folder), hint=hint)
        for name, size in manifest["sizes"].items():
            file = folder / name
            if not file.is_file():
                raise ArtifactError("is missing", where=str(file), hint=hint)
            if file.stat().st_size != size or (verify and sha256_file(file) != manifest["files"][name]):
                raise ArtifactError("has changed since it was built", where=str(file), hint=hint)
        return manifest

    def check_place(self, folder: Path) -> dict[str, Any]:
        """Returns the manifest of the folder that is replaced here, {} where nothing stands. Raises ConfigError where
        something else does."""
        manifest = self.find_manifest(folder)
        if manifest or not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return manifest
        reason = f"something stands there that is not {self.name}"
        raise ConfigError(reason, where=str(folder), hint="name another folder, or remove it")


def digest_manifest(manifest: dict[str, Any]) -> str:
    """A digest of what a folder holds: of the digests of its files, and of what else its manifest says."""
    return sha256_text(json.dumps(manifest, sort_keys=True))
