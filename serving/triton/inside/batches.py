"""Runs the rows that the server hands over together in one pass, with an outcome for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from revelator.errors import Cancelled, RevelatorError, ServingError

Row = TypeVar("Row")
Result = TypeVar("Result")
log = logging.getLogger(__name__)


def run_together(
    rows: Sequence[Row], work: Callable[[Sequence[Row]], Sequence[Result]], what: str
) -> Sequence[Result | RevelatorError]:
    """Runs `work` on all rows, and, if that fails, on each row alone, so that a row that is wrong fails by itself.
    Returns a result or an error for each row. Cancelled ends all rows at once; an error that is not ours is logged and
    becomes ServingError.

    Errors lose their tracebacks, whose frames would keep all that the pass had in memory.
    """
    try:
        return work(rows)
    except RevelatorError as error:
        failed = error.with_traceback(None)
    except Exception as error:
        log.exception("%s, %d rows", what, len(rows))
        failed = ServingError(f"{type(error).__name__}: {error}".splitlines()[0], where=what)
    if len(rows) == 1 or isinstance(failed, Cancelled):
        return [failed] * len(rows)
    return [outcome for row in rows for outcome in run_together([row], work, what)]
