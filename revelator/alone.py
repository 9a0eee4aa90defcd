"""Folders that one process writes at a time, and what a build that does not end leaves for the next to go on from."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from revelator.durable import place_of, write_json
from revelator.errors import ConfigError

PLAN = "plan.json"


@contextmanager
def held(lock: Path, doing: str, where: Path, hint: str = "wait for it, or name another folder") -> Iterator[None]:
    """Holds the file `lock` for this process; the hold goes with the process, however that ends, and the file with the
    hold. Raises ConfigError naming the process that holds it, and is `doing` something at `where`. (A file that is open
    for writing, as a lock on a shared file system wants it.)"""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            said = f"another process ({file.read()}) is {doing}"
            raise ConfigError(said, where=str(where), hint=hint) from error
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
def work_folder(target: Path, plan: dict[str, Any], pattern: str, doing: str) -> Iterator[Path]:
    """The folder `.NAME.building` beside `target` for the parts of its build: files like `pattern`, which are there
    still where a build of the same `plan` left them. It is removed when the block ends; where that fails, or is killed
    or interrupted, the parts stay. Raises ConfigError while another process builds at `target`."""
    target = place_of(target)
    folder = target.with_name(f".{target.name}.building")
    with held(target.with_name(f".{target.name}.lock"), doing, target):
        folder.mkdir(exist_ok=True)
        if _plan(folder) != plan:
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


def _plan(folder: Path) -> Any:
    """What the parts in this folder were made from; None where that cannot be read."""
    try:
        return json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        return None
