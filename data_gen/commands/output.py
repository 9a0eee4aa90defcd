"""How far long work is, and why its files cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from revelator.errors import DataError


@contextmanager
def show_progress(amount: ProgressColumn | None = None) -> Iterator[Callable[..., None]]:
    """Yields a function that shows how far something is. Its first call draws the bars, so that an error before it
    stands alone. `amount` is the column that says how far, in the place of numbers."""
    how_far = amount or MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), how_far, TimeElapsedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))
    tasks: dict[str, Any] = {}
    with ExitStack() as drawn:

        def show(what: str, done: int | None = None, note: str = "", **numbers: Any) -> None:
            if not bars.live.is_started:
                drawn.enter_context(bars)
            if what not in tasks:
                tasks[what] = bars.add_task(escape(what), total=None, note=note)
            bars.update(tasks[what], completed=done, note=note, **numbers)

        yield show


@contextmanager
def explain_write_errors(out: Path) -> Iterator[None]:
    """Turns whatever keeps files from being written to `out` into one clear error."""
    try:
        yield
    except OSError as error:
        if file := next((place for place in out.parents if place.is_file()), None):
            reason, hint = f"{file} is a file and stands in the way", "name another folder"
        else:
            reason = error.strerror or str(error)
            hint = "free space, or name another folder; what stood there before is unchanged"
        raise DataError(f"cannot be written: {reason}", where=str(out), hint=hint) from error
