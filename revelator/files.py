"""Files on disk: durable writes, resumable lines, locks, folders that are replaced whole, digests.

replace_file, write_bytes, write_json   a reader sees the old file or the new one, never a part
write_bytes_once                        the same, and a file that is there stays
append_lines, read_lines                lines that survive a kill, without a torn last one
hold_lock, try_lock                     one process at a time
stage_folder, lock_work_folder          a folder that is replaced whole; a build that continues after a kill
sha256_file, sha256_folder, …           digests
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from revelator.errors import ConfigError

CODE = ("*.py", "*.lark", "*.txt", "*.yaml", "*.tsv")
PLAN = "plan.json"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


@contextmanager
def replace_file(path: Path, mode: int = 0o644) -> Iterator[BinaryIO]:
    """A file to fill; when the block ends it is synced and takes the place of `path` by rename. On an error it is
    removed, and `path` stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(aside).chmod(mode)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    with replace_file(path, mode) as file:
        file.write(data)


def write_bytes_once(path: Path, data: bytes) -> None:
    """Writes a file for its owner alone, whole and synced, unless there is one by then: the first of several holds."""
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=path.name) as aside:
        aside.write(data)
        aside.flush()
        os.fsync(aside.fileno())
        with suppress(FileExistsError):
            os.link(aside.name, path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode(), mode)


def find_delimiter(header: str) -> str:
    """What separates the columns of a CSV file with this first line: a comma, or, as spreadsheets write it in many
    countries, a semicolon or a tab."""
    return "," if "," in header or not {";", "\t"} & {*header} else max(";\t", key=header.count)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends whole lines to a file, which is created if it is missing; a last line that a kill or a full disk cut
    short is removed before. Several processes may append to one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            file.truncate(path.read_bytes().rfind(b"\n") + 1)
        rest = memoryview("".join(f"{line}\n" for line in lines).encode())
        while rest:
            rest = rest[file.write(rest) :]


def read_lines(path: Path) -> list[bytes]:
    """The whole lines of a file that `append_lines` writes; none where there is no file. A last line that is not whole,
    as a kill leaves it or another process is writing it, is left out."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


@contextmanager
def hold_lock(lock: Path, doing: str, where: Path, hint: str = "wait for it, or name another folder") -> Iterator[None]:
    """Holds the file `lock` for this process until the block ends, then removes it; the lock ends with the process,
    however that ends. Raises ConfigError with the number of the process that holds it, which is `doing` something at
    `where`. (The file is open for writing, as a lock on a shared file system wants it.)"""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            message = f"another process ({file.read()}) is {doing}"
            raise ConfigError(message, where=str(where), hint=hint) from error
        if not (lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat())):
            raise ConfigError(f"another process was {doing} until now", where=str(where), hint="try again")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def try_lock(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Tries to take the lock `path`, and holds it until the block ends; yields whether it could. The file stays.

    It tries for a tenth of a second, because a process that only looks whether the lock is free holds it for a moment.
    Raises ConfigError for a folder that cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        hint = "name a folder that you may write, with --home or REVELATOR_HOME"
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(path.parent), hint=hint) from error
    with file:
        yield any(_take(file.fileno(), shared, wait) for wait in (0, 0.02, 0.02, 0.02, 0.02))


def _take(file: int, shared: bool, wait: float) -> bool:
    time.sleep(wait)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def resolve_target(target: Path) -> Path:
    """The folder that is replaced for `target`: what a symbolic link leads to. Raises ConfigError for the current
    folder, which would vanish under the running command."""
    place = target.resolve()
    if place == Path.cwd():
        raise ConfigError("the current folder cannot be replaced", where=str(target), hint="name a folder within it")
    return place


@contextmanager
def stage_folder(target: Path) -> Iterator[Path]:
    """Creates a folder beside `target`. When the block ends, the folder is renamed to `target`; on an error it is
    removed.

    A folder that stands there changes names with it in one step, and is removed after. Where the system cannot do that,
    it is set aside before the rename. What a killed process left on this machine is cleared first: its stage is
    removed, and the folder that it had set aside returns if nothing took its place. The names of both carry the number
    of their process.
    """
    target = resolve_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(target)
    stage = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{_name_aside(target, 'staging')}{os.getpid()}-"))
    stage.chmod(0o755)
    old = stage.with_name(stage.name.replace(".staging-", ".old-"))
    try:
        yield stage
        for path in stage.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        sync_folder(stage)
        if target.exists() and _exchange(stage, target):
            old = stage
        else:
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


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges the names of two folders in one step. False, and nothing has changed, where the system or the file
    system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    paths = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other))
    return rename is not None and rename(*paths, RENAME_EXCHANGE) == 0


def _name_aside(target: Path, kind: str) -> str:
    """Returns the prefix of the names of this machine's folders of a `kind` beside `target`; a process number
    follows."""
    return f".{target.name}.{kind}-{platform.node()}-"


def _clear_abandoned(target: Path) -> None:
    for old in _list_abandoned(target, "old"):
        if not target.exists():
            old.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    for stage in _list_abandoned(target, "staging"):
        shutil.rmtree(stage, ignore_errors=True)


def _list_abandoned(target: Path, kind: str) -> list[Path]:
    """Lists the folders of a `kind` beside `target` whose process has ended."""
    start = _name_aside(target, kind)
    found = target.parent.glob(f"{glob.escape(start)}*")
    return [path for path in found if not _is_running(int(path.name.removeprefix(start).partition("-")[0]))]


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


@contextmanager
def lock_work_folder(target: Path, plan: dict[str, Any], pattern: str, doing: str) -> Iterator[Path]:
    """The folder `.NAME.building` beside `target` for the parts of its build, which are files like `pattern`.

    It holds the parts that an earlier build of the same `plan` left, and no others. It is removed when the block ends;
    if the block fails or is killed, the parts stay for the next build. Raises ConfigError while another process builds
    at `target`.
    """
    target = resolve_target(target)
    folder = target.with_name(f".{target.name}.building")
    with hold_lock(target.with_name(f".{target.name}.lock"), doing, target):
        folder.mkdir(exist_ok=True)
        if _read_plan(folder) != plan:
            for path in folder.glob(pattern):
                path.unlink()
            write_json(folder / PLAN, plan)
        done = False
        try:
            yield folder
            done = True
        finally:
            if done or not any(folder.glob(pattern)):
                shutil.rmtree(folder)


def _read_plan(folder: Path) -> Any:
    """Reads from what the parts in this folder were made; None if that cannot be read."""
    try:
        return json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        return None


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
    """Digests each file below `folder`, by its relative path, sorted."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file())
    names = {str(p.relative_to(folder)): p for p in files}
    return {name: sha256_file(path) for name, path in names.items() if name not in leave_out}


@cache
def digest_code(*packages: ModuleType) -> str:
    """The sha256 over the files of packages. If it differs, the code differs, and so may its results."""
    folders = [Path(folder) for package in packages for folder in package.__path__]
    files = sorted(path for folder in folders for pattern in CODE for path in folder.rglob(pattern))
    return sha256_text("".join(map(sha256_file, files)))
