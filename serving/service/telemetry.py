"""What a process that serves reports of requests: metrics, a line in the events file, a span below the client's.

Nothing here may fail a question: an error of telemetry is logged, and the question goes on.

The events file holds one JSON line a question or error, without any text of a question unless a switch asks for it.

    REVELATOR_EVENTS=/var/log/revelator.jsonl     # `-`: standard error, which a container's platform collects
    REVELATOR_LOG_QUESTIONS=1                     # questions, plans, answers and messages too
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec

from revelator import spans
from revelator.errors import RevelatorError
from revelator.trace import Trace
from revelator.wire import choose_grpc_code
from serving.home.config import EVENTS_VARIABLE
from serving.service.metrics import ERRORS, IN_FLIGHT, IN_FLIGHT_LIMIT, count_trace

ID_CHARACTERS = 128  # of a client's request id; the rest is dropped
log = logging.getLogger(__name__)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context, section 3.2
Parameters = ParamSpec("Parameters")


def _never_raise(report: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Makes `report` log its errors in place of raising them."""

    @wraps(report)
    def report_safely(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            report(*args, **kwargs)
        except Exception:
            log.exception("telemetry failed")

    return report_safely


@dataclass(frozen=True)
class Arrival:
    """A request as it arrived. `traceparent` names the trace that it belongs to, if the client sent one."""

    id: str
    traceparent: str | None = None
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, id: str, parameters: Mapping[str, Any]) -> Arrival:
        """Takes the client's request id, or makes one. What is not well-formed is dropped."""
        sent = parameters.get(spans.HEADER)
        known = isinstance(sent, str) and _TRACEPARENT.fullmatch(sent)
        return cls(id[:ID_CHARACTERS] or uuid.uuid4().hex, sent if known else None)

    @property
    def trace_id(self) -> str | None:
        return self.traceparent.split("-")[1] if self.traceparent else None


CURRENT: ContextVar[Arrival] = ContextVar("arrival")


class Telemetry:
    """Reports how many requests are in flight, the errors of requests, and each finished trace."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._log = EventLog(model)
        spans.start(f"revelator-{model}")

    @_never_raise
    def report_in_flight(self, count: int, limit: int) -> None:
        IN_FLIGHT.labels(self.model).set(count)
        IN_FLIGHT_LIMIT.labels(self.model).set(limit)

    @_never_raise
    def record_trace(self, trace: Trace) -> None:
        """Call it in the context of the request that the trace answers."""
        count_trace(self.model, trace)
        spans.describe_served(trace)
        spent: dict[str, float] = {}
        for node in trace.nodes:
            for call in node.list_calls():
                spent[call["task"]] = round(spent.get(call["task"], 0.0) + call["ms"], 1)
        leaves = sum(node.kind == "atomic" for node in trace.nodes)
        texts = (
            {"question": trace.question, "plan": trace.plan, "answer": trace.answer} if self._log.writes_texts else {}
        )
        self._log.write(
            "question",
            **_name_request(),
            code="OK",
            outcome=trace.outcome,
            route=trace.route,
            strategy=trace.strategy,
            plan_source=trace.plan_source,
            degraded=trace.degraded,
            leaves=leaves,
            ms=round(trace.wall_ms, 1),
            critical_path_ms=round(trace.critical_path_ms, 1),
            spent_ms=spent,
            versions=trace.versions,
            **texts,
        )

    @_never_raise
    def record_error(self, error: BaseException) -> None:
        """Called in the context of the request that ends with this error."""
        code = choose_grpc_code(error) if isinstance(error, RevelatorError) else "INTERNAL"
        kind = type(error).__name__
        ERRORS.labels(self.model, code, kind).inc()
        message = str(error) if self._log.writes_texts else None
        ms = round((time.perf_counter() - CURRENT.get().began) * 1000, 1)
        self._log.write("error", **_name_request(), code=code, error=kind, ms=ms, message=message)


def _name_request() -> dict[str, str | None]:
    arrival = CURRENT.get()
    return {"request": arrival.id, "trace": arrival.trace_id}


_OPENED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe that nobody reads is an error


class EventLog:
    """Writes the events of one model, if a file is named.

    Lines are appended whole. The file is opened for each, so a file that a rotation moved away is created again, and a
    disk that was full is written to again once it has room.
    """

    def __init__(self, model: str, environment: Mapping[str, str] = os.environ) -> None:
        self._model = model
        self.writes_texts = spans.may_hold_texts(environment)
        self._place = environment.get(EVENTS_VARIABLE)
        self._fault: str | None = None

    def write(self, event: str, **values: object) -> None:
        """Writes one line, without the values that are None. A line that cannot be written is lost; the process's own
        log says so once for each reason."""
        if not self._place:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, "model": self._model, **values}
        text = json.dumps({name: value for name, value in line.items() if value is not None}, ensure_ascii=False)
        try:
            self._append(f"{text}\n".encode(errors="replace"))
            self._fault = None
        except (OSError, ValueError) as error:  # of a path that is none
            if self._fault != str(error):
                log.warning("events are lost: %s", error)
            self._fault = str(error)

    def _append(self, line: bytes) -> None:
        if self._place == "-":
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            return
        assert self._place is not None
        file = os.open(self._place, _OPENED, 0o600)  # it may hold questions
        try:
            os.write(file, line)
        finally:
            os.close(file)
