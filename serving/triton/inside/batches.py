"""Rows that a server hands over together: one pass for all of them, an outcome for each."""

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
    """What `work` makes of the rows; when it fails, of each row alone, or the error that it alone meets. Cancelled is
    all rows' at once. Errors that are not ours are logged, and become ServingError.

    An error is kept without its traceback: the frames hold what the pass had in memory, and whoever keeps the error.
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
