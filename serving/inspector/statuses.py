"""HTTP's words for the error tree."""

from __future__ import annotations

from revelator import errors
from revelator.errors import RevelatorError

_STATUSES: dict[type[RevelatorError], int] = {
    errors.ExpressionError: 400,
    errors.PlanError: 400,
    errors.InvalidRequest: 400,
    errors.DataError: 404,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.DeadlineExceeded: 504,
}


def status_of(error: RevelatorError) -> int:
    """500 for a fault of the server."""
    return _STATUSES.get(type(error), 500)
