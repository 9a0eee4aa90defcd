"""A registry version as a version folder of the live repository: staged, verified, put in place by one rename."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from revelator.artifact import MANIFEST, base_folder, read_manifest, verify_adapter
from revelator.errors import ArtifactError
from revelator.files import sha256_folder, staged_folder, write_json
from revelator.registry import DIGEST_TAG, Version, download
from serving.deployment.promotion import Release
from serving.triton import repository
from serving.triton.repository import ADAPTER, RELEASE, REVELATOR


def stage(folder: Path, version: Version) -> Release:
    """Makes `folder` whole: adapter, model.py, version.json. One that is this version already is left as it is.

    Raises ArtifactError when a file is damaged or missing, and when base, prompts or grammar are not those that the
    adapter was trained with; `folder` is then as it was.
    """
    kept = _kept(folder, version)
    if kept:
        return kept
    with staged_folder(folder) as stage:
        download(version, stage / ADAPTER)
        release = _release(stage / ADAPTER, version)
        shutil.copyfile(repository.template(REVELATOR), stage / "model.py")
        repository.compile_code(stage / "model.py")
        write_json(stage / RELEASE, asdict(release))
    return release


def read_release(folder: Path) -> Release | None:
    """What a version folder says of itself; None when there is no such folder."""
    path = folder / RELEASE
    return Release(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _kept(folder: Path, version: Version) -> Release | None:
    release = read_release(folder)
    if release is None:
        return None
    whole = sha256_folder(folder / ADAPTER) == release.files
    same = release.files.get(MANIFEST) == version.tags.get(DIGEST_TAG)
    code = (folder / "model.py").read_bytes() == repository.template(REVELATOR).read_bytes()
    if not (whole and same and code and Path(release.base["folder"]).is_dir()):
        return None
    _verify(folder / ADAPTER, Path(release.base["folder"]), version)  # the base may have changed since
    return release


def _release(adapter: Path, version: Version) -> Release:
    manifest = read_manifest(adapter)
    base = base_folder(manifest.base_name).resolve()
    _verify(adapter, base, version)
    return Release(
        model=version.name,
        version=version.version,
        run_id=version.run_id,
        base={"name": manifest.base_name, "digest": manifest.base_digest, "folder": str(base)},
        files=sha256_folder(adapter),
    )


def _verify(adapter: Path, base: Path, version: Version) -> None:
    try:
        verify_adapter(adapter, base)
    except ArtifactError as error:  # it names the staging folder, which is gone when this is read
        where = f"version {version.version} of {version.name}"
        raise ArtifactError(error.message, where=where, hint=error.hint) from error


def clear_leftovers(home: Path) -> None:
    """Removes what a killed deploy left; the caller holds the deploy lock, so nobody is at work there."""
    for path in (repository.repository(home) / REVELATOR).glob(".*-*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def prune(home: Path, keep: int, needed: set[int | None]) -> tuple[int, ...]:
    """Removes the oldest version folders beyond `keep`, never one that is needed."""
    there = repository.versions(home, REVELATOR)
    old = tuple(v for v in there[: max(0, len(there) - keep)] if v not in needed)
    for version in old:
        shutil.rmtree(repository.repository(home) / REVELATOR / str(version))
    return old
