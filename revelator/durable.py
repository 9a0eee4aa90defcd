"""Files that are whole or absent: write aside, fsync, rename; digests to know them by."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from revelator.errors import ConfigError

CODE = ("*.py", "*.lark", "*.txt", "*.yaml", "*.tsv")


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Puts `data` at `path` in one step: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(mode)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode(), mode)


def place_of(target: Path) -> Path:
    """Where a folder that is to be replaced lies: of a symbolic link what it leads to. Raises ConfigError for the
    current folder, which would be gone from under the command."""
    place = target.resolve()
    if place == Path.cwd():
        raise ConfigError("the current folder cannot be replaced", where=str(target), hint="name a folder within it")
    return place


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` to fill; on success it takes `target`'s place by rename, on an error it is removed.

    The target is the `place_of` what is given. A folder that stands there already is set aside first and removed after
    the rename. What a killed process left beside it on this machine is tidied first: its stage is removed, and what it
    had set aside goes back where nothing took its place. Both names carry the number of their process.
    """
    target = place_of(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _tidy(target)
    stage = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{_aside(target, 'staging')}{os.getpid()}-"))
    stage.chmod(0o755)
    old = stage.with_name(stage.name.replace(".staging-", ".old-"))
    try:
        yield stage
        for path in stage.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(stage)
        if target.exists():
            target.rename(old)
        stage.rename(target)
        sync_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _aside(target: Path, kind: str) -> str:
    """How the names of this machine's folders of a `kind` beside `target` begin; the number of a process follows."""
    return f".{target.name}.{kind}-{platform.node()}-"


def _tidy(target: Path) -> None:
    for old in _abandoned(target, "old"):
        if not target.exists():
            old.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    for stage in _abandoned(target, "staging"):
        shutil.rmtree(stage, ignore_errors=True)


def _abandoned(target: Path, kind: str) -> list[Path]:
    """Folders of a `kind` beside `target` whose process is gone."""
    start = _aside(target, kind)
    found = target.parent.glob(f"{glob.escape(start)}*")
    return [path for path in found if not psutil.pid_exists(int(path.name.removeprefix(start).partition("-")[0]))]


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_folder(folder: Path, *, leave_out: frozenset[str] = frozenset()) -> dict[str, str]:
    """Digest of each file below `folder`, by its path relative to it, sorted."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    names = {str(p.relative_to(folder)): p for p in files}
    return {name: sha256_file(path) for name, path in names.items() if name not in leave_out}


@cache
def code_digest(*packages: ModuleType) -> str:
    """sha256 over the files of packages: another one means other code, whose results may differ."""
    folders = [Path(folder) for package in packages for folder in package.__path__]
    files = sorted(path for folder in folders for pattern in CODE for path in folder.rglob(pattern))
    return sha256_text("".join(map(sha256_file, files)))
