"""The wire: errors that travel as a JSON message inside a gRPC status.

Triton's Python backend can send UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARGUMENT, UNAVAILABLE, UNSUPPORTED,
ALREADY_EXISTS and CANCELLED. It has no DEADLINE_EXCEEDED: a server that ran out of time says CANCELLED, and the message
names the error.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from revelator import errors
from revelator.errors import ExpressionError, PlanError, RevelatorError, ServingError
from revelator.language import Diagnostic

_SENT = (
    errors.InvalidRequest,
    errors.Overloaded,
    errors.Unavailable,
    errors.DeadlineExceeded,
    errors.Cancelled,
    errors.ServingError,
    errors.TaskOutputError,
    errors.ArtifactError,
    errors.ConfigError,
)
_BY_NAME = {kind.__name__: kind for kind in _SENT}
_BY_CODE: dict[str, type[RevelatorError]] = {
    "INVALID_ARGUMENT": errors.InvalidRequest,
    "UNAVAILABLE": errors.Unavailable,
    "NOT_FOUND": errors.Unavailable,  # Triton's word for a model that is not loaded
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "CANCELLED": errors.Cancelled,
}
_PLACE = ("code", "start", "end", "line", "column", "excerpt")
# Triton's words for a model that is dead or not loaded; in a stream an error has no code
_GONE = re.compile(r"Stub process .* is not healthy\.$|Request for unknown model: ")


def grpc_code(error: RevelatorError) -> str:
    """The gRPC status name that an error travels under."""
    if isinstance(error, ExpressionError | PlanError):
        return "INVALID_ARGUMENT"
    return error.grpc_code if isinstance(error, ServingError) else "INTERNAL"


def write_error(error: RevelatorError) -> str:
    """JSON: `error` (class), `code`, `message`, `where`, `hint`; `final` if it is; `retry_after_ms` of a server that is
    full; `diagnostics` of a plan, `place` of an expression."""
    value: dict[str, Any] = {
        "error": type(error).__name__,
        "code": grpc_code(error),
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }
    if isinstance(error, errors.Unavailable) and error.final:
        value["final"] = True
    if isinstance(error, errors.Overloaded):
        value["retry_after_ms"] = error.retry_after_ms
    if isinstance(error, PlanError):
        value["diagnostics"] = [asdict(d) for d in error.diagnostics]
    if isinstance(error, ExpressionError):
        value["place"] = {name: getattr(error, name) for name in _PLACE}
        diagnostic = {"code": error.code, "message": error.message, "start": error.start, "end": error.end}
        value["diagnostics"] = [{**diagnostic, "hint": error.hint}]
    return json.dumps(value, ensure_ascii=False)


def read_error(code: str, message: str) -> RevelatorError:
    """The error behind a gRPC status (`INVALID_ARGUMENT`, …) and message; a message that is not ours is kept."""
    try:
        value = json.loads(message)
        kind = value["error"]
    except (ValueError, KeyError, TypeError):
        return errors.Unavailable(message) if _GONE.match(message) else _BY_CODE.get(code, ServingError)(message)
    if kind == "PlanError":
        found = tuple(Diagnostic(**d) for d in value["diagnostics"])
        return PlanError(value["message"], diagnostics=found, hint=value["hint"])
    if kind == "ExpressionError":
        return ExpressionError(value["message"], hint=value["hint"], **value["place"])
    if kind == "Unavailable":
        final = value.get("final", False)
        return errors.Unavailable(value["message"], where=value["where"], hint=value["hint"], final=final)
    if kind == "Overloaded":
        after = value.get("retry_after_ms")
        return errors.Overloaded(value["message"], where=value["where"], hint=value["hint"], retry_after_ms=after)
    return _BY_NAME.get(kind, ServingError)(value["message"], where=value["where"], hint=value["hint"])
