"""Metrics of questions: what the page `/metrics` shows. To count takes some 3 µs."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from revelator.tasks import TASKS
from revelator.trace import Node, Trace

disable_created_metrics()  # a series beside each, of when it began
QUESTION_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def _counter(name: str, meaning: str, *labels: str) -> Counter:
    return Counter(f"revelator_{name}_total", meaning, ("model", *labels))


def _gauge(name: str, meaning: str, label: str = "model") -> Gauge:
    return Gauge(f"revelator_{name}", meaning, (label,))


def _histogram(name: str, meaning: str, label: str, buckets: tuple[float, ...]) -> Histogram:
    return Histogram(f"revelator_{name}", meaning, ("model", label), buckets=buckets)


QUESTIONS = _counter(
    "questions", "Questions that ended with a trace, by route, outcome and version", "route", "outcome", "version"
)
QUESTION_SECONDS = _histogram(
    "question_seconds", "Time of a question in the executor, by route", "route", QUESTION_BUCKETS
)
PLANS = _counter("plans", "Plans by validity: first, later, degraded, none, given", "route", "language", "validity")
DEGRADED = _counter("degraded", "Questions that could not go the way that was chosen, by route", "route")
DEADLINE_EXCEEDED = _counter("deadline_exceeded", "Questions answered in part because time ran out")
LEAVES = _counter("leaves", "Leaves by status, and by where their answer came from", "status", "source")
STEPS = _counter("steps", "Rounds of the refine loop")
CALLS = _counter("calls", "Prompts, searches and readings, by task", "task")
CALL_SECONDS = _histogram("call_seconds", "Time of a call with its retries, by task or source", "task", CALL_BUCKETS)
TOKENS = _counter("tokens", "Model tokens by task and direction", "task", "direction")
RETRIES = _counter("retries", "Calls made again, by service", "service")
ERRORS = _counter("errors", "Requests that ended with an error, by gRPC code and kind", "code", "error")
ACTIVE_VERSION = _gauge("active_version", "Version of each model that answered last")
INDEX_VERSION = _gauge("index_version", "Version of each index that questions search", "index")
INDEX_REFUSED = _gauge("index_refused", "1 while the version in an index's folder is not fit to be searched", "index")
IN_FLIGHT = _gauge("in_flight", "Requests in flight")
WAITING = _gauge("waiting", "Requests in flight that wait for a turn: the queue")
IN_FLIGHT_LIMIT = _gauge("in_flight_limit", "Requests in flight beyond which the next is refused")


def count_trace(model: str, trace: Trace) -> None:
    """Counts a finished trace of the executor `model`."""
    route = trace.route or ("given" if trace.plan_source == "given" else trace.strategy)
    QUESTIONS.labels(model, route, trace.outcome, trace.versions.get("revelator", "")).inc()
    QUESTION_SECONDS.labels(model, route).observe(trace.wall_ms / 1000)
    if trace.plan_source == "given":
        PLANS.labels(model, route, trace.plan_language, "given").inc()
    if trace.degraded:
        DEGRADED.labels(model, route).inc()
    if trace.deadline_exceeded:
        DEADLINE_EXCEEDED.labels(model).inc()
    for name, versions in trace.versions.items():
        if (number := versions.split(", ")[-1]).isdecimal():  # an endpoint that plans reports the name of a model
            ACTIVE_VERSION.labels(name).set(float(number))
    for node in trace.nodes:
        if node.kind == "translate":
            language = TASKS[node.detail["task"]].language
            assert language
            PLANS.labels(model, route, language.name, _judge_plan(node)).inc()
        _count_node(model, node)


def _judge_plan(node: Node) -> str:
    """`first`: the model's first plan could be run; `later`: one that it wrote at a higher temperature; `degraded`: it
    was not finished within its budget, and the question itself is the plan; `none`: no plan could be run."""
    if node.status != "ok":
        return "none"
    if node.detail.get("degraded"):
        return "degraded"
    return "later" if len(node.detail["attempts"]) > 1 else "first"


def _count_node(model: str, node: Node) -> None:
    if node.kind == "atomic":
        taken = [source for source in ("shared", "reused", "cached") if f"{source}_from" in node.detail]
        LEAVES.labels(model, node.status, taken[0] if taken else "asked").inc()
    if node.kind == "refine":
        STEPS.labels(model).inc()
    for call in node.list_calls():
        task = call["task"]
        CALLS.labels(model, task).inc(call["count"])
        CALL_SECONDS.labels(model, task).observe(call["ms"] / 1000)
        for direction in ("in", "out"):
            TOKENS.labels(model, task, direction).inc(call.get(f"tokens_{direction}") or 0)
    for service, count in node.detail.get("retries", {}).items():
        RETRIES.labels(model, service).inc(count)
