"""What a model's process tells of its requests: metrics, a line in the log, and a span that continues the client's.

Nothing here may fail a question: what cannot be told is logged, and the question goes on.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

from revelator import spans
from revelator.calls import CALL, PROBE
from revelator.errors import RevelatorError
from revelator.trace import Trace
from revelator.wire import grpc_code
from serving.triton.counts import calls, sample, samples
from serving.triton.event_log import EventLog
from serving.triton.metrics import Metrics

ID_CHARACTERS = 128  # of a client's request id or call; the rest is dropped
LOOK_CHARACTERS = 100_000  # some 3,000 calls
log = logging.getLogger(__name__)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context, section 3.2
Taken = ParamSpec("Taken")


def _harmless(tell: Callable[Taken, None]) -> Callable[Taken, None]:
    """`tell`, of which an error is logged and goes no further."""

    @wraps(tell)
    def told(*args: Taken.args, **kwargs: Taken.kwargs) -> None:
        try:
            tell(*args, **kwargs)
        except Exception:
            log.exception("telemetry failed")

    return told


@dataclass(frozen=True)
class Asked:
    """A request as it arrived. `traceparent` names the trace that it belongs to, if the client sent one; `call` is the
    client's own name for it, `look` those of the calls that it asks after (`revelator.calls`)."""

    id: str
    traceparent: str | None = None
    call: str | None = None
    look: tuple[str, ...] | None = None
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, request: Any) -> Asked:
        """The client's request id, or one of our own; its trace, in that the server's own span if it tells any. What
        the client sent as its trace and is none is left out."""
        parameters = json.loads(request.parameters() or "{}")
        sent, call, look = (parameters.get(name) for name in (spans.HEADER, CALL, PROBE))
        if spans.are_on() and (inside := request.trace().get_context()):
            sent = json.loads(inside)[spans.HEADER] if isinstance(inside, str) else inside[spans.HEADER]
        known = isinstance(sent, str) and _TRACEPARENT.fullmatch(sent)
        return cls(
            request.request_id()[:ID_CHARACTERS] or uuid.uuid4().hex,
            sent if known else None,
            call[:ID_CHARACTERS] if isinstance(call, str) else None,
            tuple(look[:LOOK_CHARACTERS].split(",")) if isinstance(look, str) else None,
        )

    @property
    def trace_id(self) -> str | None:
        return self.traceparent.split("-")[1] if self.traceparent else None


ASKED: ContextVar[Asked] = ContextVar("asked")


class Telemetry:
    """Told by the request loop how many requests are in flight and how they fail, by the executor of each trace."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._metrics = Metrics(model)
        self._log = EventLog(model)
        spans.start(f"revelator-{model}")

    @_harmless
    def in_flight(self, count: int, limit: int) -> None:
        gauges = sample("revelator_in_flight", count), sample("revelator_in_flight_limit", limit)
        self._metrics.add(gauges)

    @_harmless
    def answered(self, trace: Trace) -> None:
        """Called in the context of the request that the trace answers."""
        self._metrics.add(samples(trace))
        spent: dict[str, float] = {}
        for node in trace.nodes:
            for call in calls(node):
                spent[call["task"]] = round(spent.get(call["task"], 0.0) + call["ms"], 1)
        leaves = sum(node.kind == "atomic" for node in trace.nodes)
        texts = {"question": trace.question, "plan": trace.plan, "answer": trace.answer} if self._log.texts else {}
        self._log.write(
            "question",
            **_ids(),
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

    @_harmless
    def failed(self, error: BaseException) -> None:
        """Called in the context of the request that ends with this error."""
        code = grpc_code(error) if isinstance(error, RevelatorError) else "INTERNAL"
        kind = type(error).__name__
        self._metrics.add([sample("revelator_errors_total", code=code, error=kind)])
        message = str(error) if self._log.texts else None
        ms = round((time.perf_counter() - ASKED.get().began) * 1000, 1)
        self._log.write("error", **_ids(), code=code, error=kind, ms=ms, message=message)

    def close(self) -> None:
        self._metrics.close()


def _ids() -> dict[str, str | None]:
    asked = ASKED.get()
    return {"request": asked.id, "trace": asked.trace_id}
