"""Measured rows as JSON lines, appended one by one, so that an interrupted measurement can continue."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from revelator.errors import ConfigError
from revelator.files import append_lines, hold_lock, read_lines

Row = TypeVar("Row")


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Creates `folder` if needed and locks it for this process. Raises ConfigError while another process holds the
    lock, because two processes that append there would write every row twice."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("this is a file", where=str(folder), hint="name a folder: --out DIR")
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder.resolve().with_name(f".{folder.resolve().name}.lock")
    return hold_lock(lock, "measuring here", folder, "wait for it, or name another folder: --out DIR")


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Reads all rows; a missing file has none. Removes a last line that a kill cut short. Raises ConfigError for rows
    with other fields."""
    try:
        return [kind(**json.loads(line)) for line in read_lines(path)]
    except TypeError as error:
        hint = "name another folder, or remove this one"
        raise ConfigError("rows of another release stand there", where=str(path), hint=hint) from error


def append_rows(path: Path, rows: Iterable[Any]) -> None:
    """Appends dataclass rows, one line each."""
    append_lines(path, (json.dumps(asdict(row), ensure_ascii=False) for row in rows))


def progress_bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
