"""Our own metrics on Triton's page (`/metrics`): what a finished trace adds, and the thread that sends it.

`METRICS` is the whole list; Triton's own (`nv_inference_*`: queue, compute, failures a model) stand beside them. A
change takes 30 to 60 µs of message passing to the server. So a request only adds to a table here, and a thread sends
what has changed twice a second and once at the end: one message for a counter, however many questions it counted, and
one for each observation of a histogram.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from revelator.trace import Node, Trace

Kind = Literal["counter", "gauge", "histogram"]

QUESTION_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CALL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metric(NamedTuple):
    """`buckets` in seconds, of a histogram."""

    kind: Kind
    description: str
    buckets: tuple[float, ...] = ()


METRICS = {
    "revelator_questions_total": Metric("counter", "Questions that ended with a trace, by route, outcome and version"),
    "revelator_question_seconds": Metric("histogram", "Time of a question in the executor, by route", QUESTION_SECONDS),
    "revelator_plans_total": Metric("counter", "Plans by validity: first, later, degraded, none, given"),
    "revelator_degraded_total": Metric("counter", "Questions that could not go the way that was chosen, by route"),
    "revelator_deadline_exceeded_total": Metric("counter", "Questions answered in part because time ran out"),
    "revelator_leaves_total": Metric("counter", "Leaves by status, and by where their answer came from"),
    "revelator_steps_total": Metric("counter", "Rounds of the refine loop"),
    "revelator_calls_total": Metric("counter", "Prompts, searches and readings, by task"),
    "revelator_call_seconds": Metric("histogram", "Time of a call with its retries, by task or source", CALL_SECONDS),
    "revelator_tokens_total": Metric("counter", "Model tokens by task and direction"),
    "revelator_retries_total": Metric("counter", "Calls made again, by service"),
    "revelator_active_version": Metric("gauge", "Version of each model that answered last"),
    "revelator_errors_total": Metric("counter", "Requests that ended with an error, by gRPC code and kind"),
    # counted by the cache itself
    "revelator_cache_lookups_total": Metric("counter", "Questions looked for among cached answers"),
    "revelator_in_flight": Metric("gauge", "Requests in flight"),
    "revelator_in_flight_limit": Metric("gauge", "Requests in flight beyond which the next is refused"),
}


class Sample(NamedTuple):
    """An addition to a counter, an observation of a histogram, or a gauge's value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def make_sample(name: str, value: float = 1.0, **labels: object) -> Sample:
    return Sample(name, tuple((key, str(text)) for key, text in labels.items()), value)


def sample_trace(trace: Trace) -> Iterator[Sample]:
    """Yields all samples of a finished trace."""
    route = trace.route or ("given" if trace.plan_source == "given" else trace.strategy)
    version = trace.versions.get("revelator", "")
    yield make_sample("revelator_questions_total", route=route, outcome=trace.outcome, version=version)
    yield make_sample("revelator_question_seconds", trace.wall_ms / 1000, route=route)
    yield from _sample_plans(trace, route)
    if trace.degraded:
        yield make_sample("revelator_degraded_total", route=route)
    if trace.deadline_exceeded:
        yield make_sample("revelator_deadline_exceeded_total")
    for model, number in trace.versions.items():
        yield make_sample("revelator_active_version", float(number.split(", ")[-1]), model=model)
    for node in trace.nodes:
        yield from _sample_node(node)


def _sample_plans(trace: Trace, route: str) -> Iterator[Sample]:
    """`first`: the model's first plan could be run; `later`: one that it wrote at a higher temperature; `degraded`: it
    could not be closed within its budget, and the question itself is the plan; `none`: no plan could be run."""
    language = trace.plan_language
    if trace.plan_source == "given":
        yield make_sample("revelator_plans_total", route=route, language=language, validity="given")
    for node in trace.nodes:
        if node.kind == "translate":
            valid = "degraded" if node.detail.get("degraded") else "first"
            valid = "later" if valid == "first" and len(node.detail["attempts"]) > 1 else valid
            valid = valid if node.status == "ok" else "none"
            yield make_sample("revelator_plans_total", route=route, language=language, validity=valid)


def _sample_node(node: Node) -> Iterator[Sample]:
    if node.kind == "atomic":
        shared, reused = "shared_from" in node.detail, "reused_from" in node.detail
        source = "shared" if shared else "reused" if reused else "asked"
        yield make_sample("revelator_leaves_total", status=node.status, source=source)
    if node.kind == "refine":
        yield make_sample("revelator_steps_total")
    for call in node.list_calls():
        task = call["task"]
        yield make_sample("revelator_calls_total", call["count"], task=task)
        yield make_sample("revelator_call_seconds", call["ms"] / 1000, task=task)
        for direction, name in ("in", "tokens_in"), ("out", "tokens_out"):
            if call.get(name):
                yield make_sample("revelator_tokens_total", call[name], task=task, direction=direction)
    for service, count in node.detail.get("retries", {}).items():
        yield make_sample("revelator_retries_total", count, service=service)


SEND_SECONDS = 0.5
log = logging.getLogger(__name__)

Series = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """The metrics of one model, which every series names as its `model` unless it names another."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._pending: dict[Series, list[float]] = {}
        self._families: dict[str, Any] = {}
        self._series: dict[Series, Any] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_until_closed, name="metrics", daemon=True)
        self._thread.start()

    def add(self, samples: Iterable[Sample]) -> None:
        """Adds samples; they are on the page within `SEND_SECONDS`."""
        with self._lock:
            for name, labels, value in samples:
                waiting = self._pending.setdefault((name, labels), [])
                kind = METRICS[name].kind
                if kind == "histogram" or not waiting:
                    waiting.append(value)
                else:
                    waiting[0] = value if kind == "gauge" else waiting[0] + value

    def close(self) -> None:
        """Sends what has not been sent, and ends the thread."""
        self._ended.set()
        self._thread.join()

    def _send_until_closed(self) -> None:
        while not self._ended.wait(SEND_SECONDS):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        for (name, labels), values in pending.items():
            try:
                series = self._series.get((name, labels)) or self._open(name, labels)
                kind = METRICS[name].kind
                change = {"counter": series.increment, "gauge": series.set, "histogram": series.observe}[kind]
                for value in values:
                    change(value)
            except Exception:  # the others are still sent: unsent values would fill the memory
                log.exception("%s is not on the page of metrics", name)

    def _open(self, name: str, labels: tuple[tuple[str, str], ...]) -> Any:
        import triton_python_backend_utils as pb_utils  # exists inside Triton's stub process only

        metric = METRICS[name]
        if name not in self._families:
            kind = getattr(pb_utils.MetricFamily, metric.kind.upper())
            self._families[name] = pb_utils.MetricFamily(name=name, description=metric.description, kind=kind)
        buckets = {"buckets": list(metric.buckets)} if metric.buckets else {}
        series = self._families[name].Metric(labels={"model": self._model} | dict(labels), **buckets)
        self._series[name, labels] = series
        return series
