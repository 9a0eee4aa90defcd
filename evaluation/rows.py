"""Measured rows as JSON lines, appended one by one, so that an interrupted measurement can continue in its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from revelator.config import find_first_fault
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import append_lines, hold_lock, read_lines, sha256_text, write_json

Row = TypeVar("Row")


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Creates `folder` if needed and locks it for this process. Raises ConfigError while another process holds the
    lock, because two processes that append there would write every row twice."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("this is a file", where=str(folder), hint="name a folder: --out DIR")
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder.resolve().with_name(f".{folder.resolve().name}.lock")
    return hold_lock(lock, "measuring here", folder, "wait for it, or name another folder: --out DIR")


def begin_folder(file: Path, about: Mapping[str, Any]) -> bool:
    """Writes what is measured into `file`, unless it is there; returns whether it was missing. Raises ConfigError where
    its folder holds something else."""
    if file.exists():
        return False
    folder = file.parent
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError("not empty and no run", where=str(folder), hint="name another folder: --out DIR")
    write_json(file, about)
    return True


def find_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each name that differs."""
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def refuse_differences(differences: Mapping[str, tuple[Any, Any]], folder: Path) -> None:
    """Raises ArtifactError that names each value in which the run in `folder` differs from this one, if any does."""
    if differences:
        lines = "".join(f"\n  {name}: {old} there, {new} now" for name, (old, new) in differences.items())
        raise ArtifactError(
            f"another run stands there:{lines}",
            where=str(folder),
            hint="name another folder: --out DIR; or ask again with what the run in this one began with",
        )


def take_sample(rows: Sequence[Row], size: int | None, seed: int, name: Callable[[Row], str]) -> list[Row]:
    """The first `size` rows by the sha256 of their name, with the seed before it unless that is 0."""
    before = f"{seed} " if seed else ""
    return sorted(rows, key=lambda row: sha256_text(before + name(row)))[:size]


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
