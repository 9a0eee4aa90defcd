"""Measured rows as JSON lines, appended one by one, so that an interrupted measurement can continue."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from revelator.config import find_first_fault
from revelator.errors import ConfigError, DataError
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
    """Reads the rows of a file, none where there is no file. Raises DataError with the line that is no such row."""
    return _check_rows(path, kind, path.read_bytes().splitlines() if path.exists() else ())


def continue_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Reads the rows of a file that more are appended to, without a last one that a kill cut short."""
    return _check_rows(path, kind, read_lines(path))


def _check_rows(path: Path, kind: type[Row], lines: Iterable[bytes]) -> list[Row]:
    rows, adapter = [], TypeAdapter(kind)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(adapter.validate_json(line))
        except ValidationError as error:
            reason = ": ".join(filter(None, find_first_fault(error)))
            raise DataError(f"cannot be read: {reason}", where=f"{path}, line {number}") from error
    return rows


def append_rows(path: Path, rows: Iterable[Any]) -> None:
    """Appends dataclass rows, one line each; the kernel has them then, so that a kill cannot lose them."""
    append_lines(path, (to_json(row).decode() for row in rows))


def progress_bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
