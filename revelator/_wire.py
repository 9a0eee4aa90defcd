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
from revelator.plans import Diagnostic

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
MOST_BYTES = 6_000  # of an error as gRPC writes it: a client refuses a status of more than 8 kB, trailers and all
_LENGTHS = (MOST_BYTES, 1_500, 400, 100, 30)  # characters that each text of an error may keep, until the whole fits
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
    full; `diagnostics` of a plan, `place` of an expression. Texts are cut, and the last diagnostics left out, where the
    whole would be larger than `MOST_BYTES`."""
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
    for most in _LENGTHS:
        text = json.dumps(_cut(value, most), ensure_ascii=False).encode(errors="replace").decode()
        if _size(text) <= MOST_BYTES:
            break
    return text


def _cut(value: Any, most: int) -> Any:
    """The value with texts of at most `most` characters, and lists of a hundredth as many entries."""
    if isinstance(value, dict):
        return {name: _cut(item, most) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, most) for item in value[: max(1, most // 100)]]
    if isinstance(value, str) and len(value) > most:
        return value[: most - 1] + "…"
    return value


def _size(text: str) -> int:
    """Bytes of a gRPC status message: what is not printable ASCII is written as three for each byte of UTF-8."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())


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
