"""HTTP's words for the error tree."""

from __future__ import annotations

import logging
import math

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from revelator import errors
from revelator.errors import InvalidRequest, RevelatorError, ServingError

_STATUSES: dict[type[RevelatorError], int] = {
    errors.ExpressionError: 400,
    errors.PlanError: 400,
    errors.InvalidRequest: 400,
    errors.DataError: 404,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.DeadlineExceeded: 504,
}
log = logging.getLogger(__name__)


def status_of(error: RevelatorError) -> int:
    """500 for a fault of the server."""
    return _STATUSES.get(type(error), 500)


def headers_of(error: RevelatorError) -> dict[str, str]:
    """When a server that is full may be asked again: whole seconds for HTTP, milliseconds for OpenAI's clients."""
    after = error.retry_after_ms if isinstance(error, errors.Overloaded) else None
    return {"Retry-After": str(math.ceil(after / 1000)), "retry-after-ms": f"{after:.0f}"} if after else {}


def described(error: Exception) -> tuple[RevelatorError, int]:
    """What to tell of any error, and its status: of HTTP's own refusals (no such route, a late body) too, and of a
    fault of this program."""
    if isinstance(error, RevelatorError):
        return error, status_of(error)
    if isinstance(error, HTTPException):
        return InvalidRequest(error.detail), error.status_code
    if isinstance(error, ClientDisconnect):
        return InvalidRequest("the client left"), 400
    log.exception("unexpected error", exc_info=error)
    return ServingError(f"{type(error).__name__}: {error}", hint="the log holds the traceback"), 500
