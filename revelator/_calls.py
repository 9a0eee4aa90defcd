"""What a call of the clients carries and brings back: the request, the answer or event, the error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator._wire import read_error
from revelator.errors import DeadlineExceeded, InvalidRequest, RevelatorError, ServingError, Unavailable
from revelator.trace import Outcome, Trace
from revelator.trace_events import Event

MODEL = "executor"
DAY = 86_400  # seconds: the longest that a call may be waited for

_HINTS: dict[type[RevelatorError], str | None] = {
    Unavailable: "is it running, and is this its gRPC address (host:port)? `revelator serve` starts one and prints it",
    DeadlineExceeded: "allow more time, or ask a simpler question",
    ServingError: None,
}


@dataclass(frozen=True)
class Answer:
    """`answer` is the final text, `answers` its single values; `outcome` "partial" means that a part failed."""

    answer: str
    answers: tuple[str, ...]
    outcome: Outcome
    trace: Trace


class Options(TypedDict, total=False):
    """What a question may be asked with."""

    plan: str | None  # an expression to run instead of the model's own
    strategy: str  # one of `revelator.limits.STRATEGIES`
    deadline_ms: float | None  # the server ends its work by then, and answers with what it has
    limits: Mapping[str, float] | None  # of revelator.limits.Limits: lower ones than the server's own
    reuse: Trace | None  # an earlier trace: what is asked again and was answered there is taken from it


def request_of(
    question: str,
    timeout: float,
    /,
    plan: str | None = None,
    strategy: str = "auto",
    deadline_ms: float | None = None,
    limits: Mapping[str, float] | None = None,
    reuse: Trace | None = None,
) -> dict[str, Any]:
    """The arguments of `infer`. Raises InvalidRequest for what cannot be sent.

    A call may last as long as the server was given, and the time that its answer needs to travel.
    """
    earlier = reuse.to_json() if reuse else None
    wanted = {"plan": plan, "strategy": strategy, "limits": dict(limits or {}), "reuse": earlier}
    options = text_input("options", json.dumps(wanted, ensure_ascii=False))
    request = {"model_name": MODEL, "inputs": [text_input("question", question), options]}
    if deadline_ms is None:
        return {**request, "client_timeout": timeout}
    deadline_ms = math.ceil(bounded("deadline_ms", deadline_ms, 1000 * DAY))
    return {
        **request,
        "parameters": {"deadline_ms": deadline_ms},
        "client_timeout": max(timeout, deadline_ms / 1000 + 1),
    }


def text_input(name: str, text: str) -> grpc_client.InferInput:
    try:
        value = np.array([text.encode()], dtype=np.object_)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"not a text: {error.reason} at character {error.start}", where=name) from error
    return grpc_client.InferInput(name, [1], "BYTES").set_data_from_numpy(value)


def bounded(name: str, value: float, most: float) -> float:
    if not 0 < value <= most:
        raise InvalidRequest(f"must be more than 0 and at most {most:,}, not {value:g}", where=name)
    return value


def event_of(result: grpc_client.InferResult) -> Event:
    return Event.from_json(json.loads(result.as_numpy("event")[0]))


def answer_of(result: grpc_client.InferResult) -> Answer:
    trace = Trace.from_json(json.loads(result.as_numpy("trace")[0]))
    return Answer(result.as_numpy("answer")[0].decode(), tuple(trace.answers), trace.outcome, trace)


def our_error(error: InferenceServerException, url: str, timeout: float) -> RevelatorError:
    """The error that the server raised, or the one that never reached it, with the address and what to do."""
    code = (error.status() or "").removeprefix("StatusCode.")
    found = read_error(code, error.message())
    if code == "DEADLINE_EXCEEDED":  # never the server's word: it says CANCELLED, and DeadlineExceeded in the message
        found = DeadlineExceeded(f"no answer within {timeout:g} s")
    if found.where is None and type(found) in _HINTS:
        found.where, found.hint = url, found.hint or _HINTS[type(found)]
    return found
