"""HTTP's words for the error tree."""

from __future__ import annotations

import math

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


def headers_of(error: RevelatorError) -> dict[str, str]:
    """When a server that is full may be asked again: whole seconds for HTTP, milliseconds for OpenAI's clients."""
    after = error.retry_after_ms if isinstance(error, errors.Overloaded) else None
    return {"Retry-After": str(math.ceil(after / 1000)), "retry-after-ms": f"{after:.0f}"} if after else {}
