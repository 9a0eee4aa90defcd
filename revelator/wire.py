"""The wire format: a question's request, its answer and events, and errors as JSON inside a gRPC status.

A server that ran out of time says CANCELLED, and the message names the error: DEADLINE_EXCEEDED is what gRPC says of a
client that waited no longer, and Triton's Python backend cannot send it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypedDict, Unpack

import numpy as np
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator import errors
from revelator.errors import (
    Cancelled,
    DeadlineExceeded,
    ExpressionError,
    InvalidRequest,
    Overloaded,
    PlanError,
    RevelatorError,
    ServingError,
    Unauthenticated,
    Unavailable,
)
from revelator.limits import LONGEST_MS
from revelator.plans import Diagnostic
from revelator.tasks import Step
from revelator.trace import Event, Evidence, Outcome, Trace

MODEL = "executor"
DAY = 86_400  # seconds: the longest that a call may be waited for
TRAVEL_SECONDS = 1.0  # that a client waits for the answer after the question's deadline

_HINTS: dict[type[RevelatorError], str | None] = {
    Unavailable: "is it running, and is this its gRPC address (host:port)? `revelator serve` starts one and prints it",
    DeadlineExceeded: "allow more time: `Client(timeout=SECONDS)`, `ask --timeout SECONDS`; or ask a simpler question",
    ServingError: None,
}


@dataclass(frozen=True)
class Answer:
    """`answer` is the final text, `answers` its single values; `outcome` is "answered", "partial" (a part has
    no answer, or no passage holds it), "unanswered" (nothing supports an answer) or "failed" (a fault)."""

    answer: str
    answers: tuple[str, ...]
    outcome: Outcome
    trace: Trace

    @property
    def evidence(self) -> list[Evidence]:
        """The spans that were found on the way, each with its sentence, passage and probability."""
        return self.trace.list_evidence()

    def __repr__(self) -> str:
        """Without the trace, which fills screens."""
        return f"Answer(answers={self.answers!r}, outcome={self.outcome!r}, plan={self.trace.plan!r})"


class Options(TypedDict, total=False):
    """What a question may be asked with."""

    plan: str | None  # an expression to run instead of the model's own
    strategy: str  # one of `revelator.limits.STRATEGIES`
    deadline_ms: float | None  # as the client's timeout, for one question: the server answers by then with what it has
    limits: Mapping[str, float] | None  # of revelator.limits.Limits: lower ones than the server's own
    reuse: Trace | None  # an earlier trace: what is asked again and was answered there is taken from it
    history: Sequence[Step] | None  # of a conversation: what was asked and answered before, the earliest first
    style: str | None  # in which language and tone a language model is to write the answer's text
    where: str  # a filter of the documents that are asked: year >= 2024 and team = "ops"
    fresh: bool  # whether every step is asked anew, also one whose answer the service has in memory


def build_request(question: str, timeout: float | None, /, **options: Unpack[Options]) -> dict[str, Any]:
    """Builds the arguments of `infer`. Raises InvalidRequest for what cannot be sent.

    `timeout`, in seconds, goes along as the question's deadline, unless there is another in the options. The client
    waits for it and for the time that the answer needs to travel; without one it waits for the server's own deadline.
    """
    return build_request_from_json(question, write_options(options), timeout, options.get("deadline_ms"))


def write_options(options: Options) -> str:
    """The JSON of a request's options: all but the deadline, which is a parameter."""
    wanted: dict[str, Any] = {"strategy": "auto", **options}
    wanted.pop("deadline_ms", None)
    if limits := options.get("limits"):
        wanted["limits"] = dict(limits)
    if reuse := options.get("reuse"):
        wanted["reuse"] = reuse.to_json()
    if history := options.get("history"):
        if wrong := next((step for step in history if not isinstance(step, Step)), None):
            hint = "from revelator.tasks import Step; history=[Step(QUESTION, (ANSWER, …)), …]"
            raise InvalidRequest(f"an entry of history is a {type(wrong).__name__}, and no Step", hint=hint)
        wanted["history"] = [asdict(step) for step in history]
    return json.dumps(wanted, ensure_ascii=False)


def build_request_from_json(
    question: str, options: str, timeout: float | None, deadline_ms: float | None = None
) -> dict[str, Any]:
    """Builds the same from options that are JSON already."""
    inputs = [make_text_input("question", question), make_text_input("options", options)]
    request = {"model_name": MODEL, "inputs": inputs}
    if deadline_ms is None and timeout is not None:
        deadline_ms = 1000 * timeout
    if deadline_ms is None:
        return {**request, "client_timeout": LONGEST_MS / 1000 + TRAVEL_SECONDS}
    deadline_ms = math.ceil(check_bounds("deadline_ms", deadline_ms, 1000 * DAY))
    return {
        **request,
        "parameters": {"deadline_ms": deadline_ms},
        "client_timeout": max(timeout or 0, deadline_ms / 1000) + TRAVEL_SECONDS,
    }


def shorten_request(request: dict[str, Any], seconds: float) -> None:
    """Bounds a request that is sent again to the `seconds` that are left for it."""
    request["client_timeout"] = seconds
    if asked := request.get("parameters"):
        left = math.ceil(1000 * max(seconds - TRAVEL_SECONDS, seconds / 2))
        request["parameters"] = {**asked, "deadline_ms": min(asked["deadline_ms"], left)}


def make_text_input(name: str, text: str) -> grpc_client.InferInput:
    try:
        value = np.array([text.encode()], dtype=np.object_)
    except AttributeError as error:
        raise InvalidRequest(f"a text is needed, not {text!r:.60}", where=name) from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"not a text: {error.reason} at character {error.start}", where=name) from error
    return grpc_client.InferInput(name, [1], "BYTES").set_data_from_numpy(value)


def check_bounds(name: str, value: float, most: float) -> float:
    if not 0 < value <= most:
        raise InvalidRequest(f"must be more than 0 and at most {most:,}, not {value:g}", where=name)
    return value


def read_event(result: grpc_client.InferResult) -> Event:
    return Event.from_json(json.loads(result.as_numpy("event")[0]))


def read_answer(result: grpc_client.InferResult) -> Answer:
    trace = Trace.from_json(json.loads(result.as_numpy("trace")[0]))
    return Answer(result.as_numpy("answer")[0].decode(), tuple(trace.answers), trace.outcome, trace)


def read_failure(error: InferenceServerException, url: str, timeout: float) -> RevelatorError:
    """Reads the error that the server raised, or makes one for a server that was not reached, with a hint."""
    code = (error.status() or "").removeprefix("StatusCode.")
    found = read_error(code, error.message())
    if code == "DEADLINE_EXCEEDED":  # never the server's word: it says CANCELLED, and DeadlineExceeded in the message
        found = DeadlineExceeded(f"no answer within {timeout:g} s, as long as this client waits")
    if found.where is None and type(found) in _HINTS:
        found.where, found.hint = url, found.hint or _HINTS[type(found)]
    return found


_BY_NAME = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RevelatorError)
}
_BY_CODE: dict[str, type[RevelatorError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "UNAVAILABLE": Unavailable,
    "NOT_FOUND": Unavailable,  # Triton's word for a model that is not loaded
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "UNAUTHENTICATED": Unauthenticated,
}
MOST_BYTES = 6_000  # of an error as gRPC writes it: a client refuses a status of more than 8 kB, trailers and all
_LENGTHS = (MOST_BYTES, 1_500, 400, 100, 30)  # characters that each text of an error may keep, until the whole fits
_PLACE = ("code", "start", "end", "line", "column", "excerpt")
_CUT = "Stream removed"  # gRPC's words for a stream without a status: a proxy ends it so when its server is gone
# Triton's words for a model that is dead or not loaded; in a stream an error has no code
_GONE = re.compile(r"Stub process .* is not healthy\.$|Request for unknown model: ")


def choose_grpc_code(error: RevelatorError) -> str:
    """Chooses the gRPC status name of an error."""
    if isinstance(error, ExpressionError | PlanError):
        return "INVALID_ARGUMENT"
    return error.grpc_code if isinstance(error, ServingError) else "INTERNAL"


def write_error(error: RevelatorError) -> str:
    """JSON: `error` (class), `code`, `message`, `where`, `hint`; `final` if it is; `retry_after_ms` of a server that is
    full; `diagnostics` of a plan, `place` of an expression. Texts are cut, and the last diagnostics left out, where the
    whole would be larger than `MOST_BYTES`."""
    value: dict[str, Any] = {
        "error": type(error).__name__,
        "code": choose_grpc_code(error),
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }
    if isinstance(error, Unavailable) and error.final:
        value["final"] = True
    if isinstance(error, Overloaded):
        value["retry_after_ms"] = error.retry_after_ms
    if isinstance(error, PlanError):
        value["diagnostics"] = [asdict(d) for d in error.diagnostics]
    if isinstance(error, ExpressionError):
        value["place"] = {name: getattr(error, name) for name in _PLACE}
        value["diagnostics"] = [asdict(Diagnostic.of_error(error))]
    for most in _LENGTHS:
        text = json.dumps(_cut(value, most), ensure_ascii=False).encode(errors="replace").decode()
        if _size(text) <= MOST_BYTES:
            break
    return text


def _cut(value: Any, most: int) -> Any:
    """Cuts texts to `most` characters, and lists to a hundredth as many entries."""
    if isinstance(value, dict):
        return {name: _cut(item, most) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, most) for item in value[: max(1, most // 100)]]
    if isinstance(value, str) and len(value) > most:
        return value[: most - 1] + "…"
    return value


def _size(text: str) -> int:
    """Counts the bytes of a gRPC status message: other than printable ASCII takes three bytes per byte of UTF-8."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())


def read_error(code: str, message: str) -> RevelatorError:
    """Reads the error behind a gRPC status (`INVALID_ARGUMENT`, …) and message; a foreign message is kept."""
    try:
        value = json.loads(message)
        name = value["error"]
    except (ValueError, KeyError, TypeError):
        if _GONE.match(message):
            return Unavailable(message, hint="ask again: `revelator serve` loads a model anew whose process died")
        if message.startswith(_CUT):
            return Unavailable("the answer ended midway: who was writing it has gone", hint="ask again")
        return _BY_CODE.get(code, ServingError)(message)
    kind = _BY_NAME.get(name, ServingError)
    given = {**value, **value.get("place", {})}
    if kind is PlanError:
        given["diagnostics"] = tuple(Diagnostic(**each) for each in value["diagnostics"])
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})
