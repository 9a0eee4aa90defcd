"""Metrics: each question is counted once, by what its trace says, and is to be read at the service's own page."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from prometheus_client import REGISTRY

from revelator.client import Client
from revelator.errors import InvalidRequest, Overloaded, PlanError
from revelator.trace import Node, Trace
from serving.service.metrics import count_trace
from tests.serving.operations import metrics_page as metrics

PLAN = "Who directed Lantern Row? * Where was {director} born?"
QUESTION = "Where was the director of Lantern Row born?"
HELD = "Which metric is held?"


@pytest.fixture
def world(served):
    served.endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
    }
    return served


def test_a_question_adds_to_the_page_what_its_trace_says_and_no_more(world):
    page = f"{world.http}/metrics"
    before = metrics.settled(page)
    with Client(world.url) as client:
        traces = [client.ask(QUESTION, plan=PLAN).trace for _ in range(3)]
        traces.append(client.ask(QUESTION, strategy="iterate", limits={"steps": 1}).trace)
    asked = metrics.total(before, "revelator_questions_total") + len(traces)
    after = metrics.settled(page, lambda page: metrics.total(page, "revelator_questions_total") >= asked)
    leaves = [node for trace in traces for node in trace.nodes if node.kind == "atomic"]
    usage = [trace.usage for trace in traces]

    def added(name: str, **labels: str) -> float:
        return metrics.total(after, name, **labels) - metrics.total(before, name, **labels)

    assert added("revelator_questions_total") == 4
    assert added("revelator_questions_total", route="given", outcome="answered", version="1", model="executor") == 3
    assert added("revelator_question_seconds_count", route="given") == 3
    walls = sum(trace.wall_ms for trace in traces[:3]) / 1000
    assert added("revelator_question_seconds_sum", route="given") == pytest.approx(walls, rel=1e-3)
    assert added("revelator_plans_total", validity="given", language="bnf") == 3
    assert added("revelator_leaves_total") == len(leaves)
    assert added("revelator_leaves_total", status="ok", source="asked") >= 6
    assert added("revelator_steps_total") == 1
    assert added("revelator_calls_total", task="search") == sum(u.retrievals for u in usage)
    readings = sum(added("revelator_calls_total", task=mode) for mode in ("read", "merge", "direct"))
    assert readings == sum(u.generator_calls for u in usage)
    prompts = sum(added("revelator_calls_total", task=task) for task in ("relevance", "refine", "end"))
    assert prompts == sum(u.model_calls for u in usage)
    assert added("revelator_tokens_total", direction="in") == sum(u.tokens_in for u in usage)
    assert added("revelator_tokens_total", direction="out") == sum(u.tokens_out for u in usage)
    assert added("revelator_call_seconds_count", task="search") == sum(u.retrievals for u in usage)
    assert metrics.total(after, "revelator_active_version", model="revelator") == 1


def test_errors_are_counted_by_code_and_kind_and_the_refused_are_seen_in_the_admission(world):
    page = f"{world.http}/metrics"
    before = metrics.read(page)
    world.endpoint.gate(HELD, "yes")
    with Client(world.url) as client:
        for plan, error in ("Where was {director} born?", PlanError), ("", Exception):
            with contextlib.suppress(error):
                client.ask("Where?", plan=plan)
        with pytest.raises(InvalidRequest):
            client.ask("Where?", strategy="sideways")
        held = [client.submit(HELD, strategy="direct") for _ in range(4)]
        full = metrics.when(page, lambda page: metrics.total(page, "revelator_in_flight", model="executor") == 4)
        limit = metrics.total(full, "revelator_in_flight_limit", model="executor")
        with pytest.raises(Overloaded):
            client.ask("One more?")
        world.endpoint.gates[HELD].set()
        assert [one.result().answer for one in held] == ["yes"] * 4
    errors = {"error": "Overloaded", "code": "UNAVAILABLE", "model": "executor"}

    def refused(page: metrics.Page) -> float:
        return metrics.total(page, "revelator_errors_total", **errors)

    after = metrics.when(
        page,
        lambda page: (
            refused(page) == refused(before) + 1 and metrics.total(page, "revelator_in_flight", model="executor") == 0
        ),
    )
    assert limit == 4
    for error in "PlanError", "InvalidRequest":
        told = {"error": error, "code": "INVALID_ARGUMENT"}
        assert metrics.total(after, "revelator_errors_total", **told) > metrics.total(
            before, "revelator_errors_total", **told
        )


def added(trace: Trace) -> dict[str, dict[tuple[str, ...], float]]:
    """What counting a trace adds: by metric, the values of its series that are not 0, by all labels but the model."""
    model = uuid.uuid4().hex
    count_trace(model, trace)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.labels.get("model") == model and sample.value and sample.name.endswith("_total"):
                labels = tuple(value for name, value in sample.labels.items() if name != "model")
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_what_a_leaf_took_from_another_is_not_counted_again():
    call = {"task": "search", "count": 1, "ms": 5.0}
    shared = Node("3", "atomic", "q", detail={"shared_from": "2"})
    reused = Node(
        "4", "atomic", "q", detail={"reused_from": "9", "sources": [{"source": "g", "searches": 1, "ms": 1.0}]}
    )
    trace = Trace("q", "compile", nodes=[Node("2", "atomic", "q", detail={"calls": [call]}), shared, reused])
    found = added(trace)
    assert found["revelator_calls_total"] == {("search",): 1}
    assert found["revelator_leaves_total"] == {("ok", "asked"): 1, ("ok", "shared"): 1, ("ok", "reused"): 1}


@pytest.mark.parametrize("language", ["bnf", "logic", "art"])
@pytest.mark.parametrize(
    ("status", "detail", "validity"),
    [
        ("ok", {"attempts": [{}]}, "first"),
        ("ok", {"attempts": [{}, {}]}, "later"),
        ("ok", {"attempts": [{}], "degraded": True}, "degraded"),
        ("failed", {"attempts": [{}] * 4}, "none"),
    ],
)
def test_a_plan_is_counted_by_its_own_language_and_how_it_became_valid(status, detail, validity, language):
    """The question may have another language: a tree that could not be written is followed by a plan."""
    node = Node("1", "translate", "q", status=status, detail=detail | {"task": f"translate_{language}"})
    found = added(Trace("q", "auto", route="complex", nodes=[node]))
    assert found["revelator_plans_total"] == {("complex", language, validity): 1}
