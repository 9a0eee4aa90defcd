"""Runs the rows that the server hands over together, those of one group in one pass, with an outcome for each row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

from revelator.errors import Cancelled, RevelatorError, ServingError

Row = TypeVar("Row")
Result = TypeVar("Result")
log = logging.getLogger(__name__)


def run_groups(
    rows: Sequence[Row],
    choose_group: Callable[[Row], tuple[Hashable, ...]],
    work: Callable[..., Sequence[Result]],
) -> list[Result | RevelatorError]:
    """Returns a result or an error for each row, in order. `choose_group` gives the row's group; `work(*group, rows)` a
    result for each row of a group.

    If `work` fails, it is run on each row alone, so that a row that is wrong fails by itself. Cancelled ends all rows
    of a group at once; an error that is not ours is logged and becomes ServingError. Errors lose their tracebacks,
    whose frames would keep all that the pass had in memory.
    """
    outcomes: dict[int, Result | RevelatorError] = {}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(choose_group(row), []).append(i)
    for group, members in groups.items():
        found = _run_together([rows[i] for i in members], partial(work, *group), str(group[0]))
        outcomes.update(zip(members, found, strict=True))
    return [outcomes[i] for i in range(len(rows))]


def _run_together(
    rows: Sequence[Row], work: Callable[[Sequence[Row]], Sequence[Result]], what: str
) -> Sequence[Result | RevelatorError]:
    try:
        return work(rows)
    except RevelatorError as error:
        failed = error.with_traceback(None)
    except Exception as error:
        log.exception("%s, %d rows", what, len(rows))
        failed = ServingError(f"{type(error).__name__}: {error}".splitlines()[0], where=what)
    if len(rows) == 1 or isinstance(failed, Cancelled):
        return [failed] * len(rows)
    return [outcome for row in rows for outcome in _run_together([row], work, what)]
