"""A folder that a command builds whole, such as an index or a graph: its manifest, and what may be built over it.

`manifest.json` is written last. It names the format of the folder, and the size and the digest of every other file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from revelator.errors import ArtifactError
from revelator.files import sha256_file, sha256_folder, write_json

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FolderKind:
    """`name` is what messages call it, "an index"; `format` is written and read, and a build replaces folders whose
    format begins with one of `replaced`; `command` builds one."""

    name: str
    format: str
    replaced: tuple[str, ...]
    command: str

    def write_manifest(self, folder: Path, about: dict[str, Any]) -> dict[str, Any]:
        """Writes the manifest of the files that are in `folder` now, with `about` in it, and returns it."""
        files = sha256_folder(folder)
        sizes = {name: (folder / name).stat().st_size for name in files}
        manifest = about | {"format": self.format, "files": files, "sizes": sizes}
        write_json(folder / MANIFEST, manifest)
        return manifest

    def read_manifest(self, folder: Path, *, verify: bool = False) -> dict[str, Any]:
        """Reads the manifest and compares the size of every file; with `verify`, its digest too. Raises ArtifactError
        for another folder or another format, and for the first file that is missing or not as it was built."""
        path, hint = folder / MANIFEST, f"build it with `{self.command}`"
        if not path.is_file():
            raise ArtifactError(f"not {self.name}: {MANIFEST} is missing", where=str(folder), hint=hint)
        try:
            manifest: dict[str, Any] = json.loads(path.read_bytes())
            found = manifest["format"]
            sizes, digests = (manifest["sizes"], manifest["files"]) if found == self.format else ({}, {})
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"not the manifest of {self.name}", where=str(path), hint=hint) from error
        if found != self.format:
            message = f"format {found!r}, and this version reads {self.format!r}"
            raise ArtifactError(message, where=str(path), hint=hint)
        for name, size in sizes.items():
            file = folder / name
            if not file.is_file() or file.stat().st_size != size:
                raise ArtifactError("missing or of another size than when it was built", where=str(file), hint=hint)
            if verify and sha256_file(file) != digests[name]:
                raise ArtifactError("has changed since it was built", where=str(file), hint=hint)
        return manifest

    def check_place(self, folder: Path) -> dict[str, Any]:
        """Returns the manifest of the folder that a build replaces here, of any format of this kind; {} where nothing
        stands. Raises ArtifactError where something else does: sets and worlds have a manifest.json too."""
        if not folder.exists():
            return {}
        try:
            manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
            if str(manifest["format"]).startswith(self.replaced):
                return manifest
        except (OSError, ValueError, KeyError, TypeError):
            pass
        raise ArtifactError(f"exists and is not {self.name}", where=str(folder), hint="name a new folder")
