"""What is asked twice is looked up once: within a plan, and between a trace and the edited plan after it."""

import asyncio
import json

import pytest

from revelator.errors import DataError
from revelator.trace import Trace, Usage

PLAN = "Who directed A? * Where was {director} born? + Who directed A? * When was {director} born?"
KNOWN = {"Who directed A?": ["Ann"], "Where was Ann born?": ["Ayr"], "When was Ann born?": ["1950"]}


def leaves(trace: Trace) -> dict[str, list]:
    found: dict[str, list] = {}
    for node in trace.nodes:
        if node.kind == "atomic" and node.asked:
            found.setdefault(node.asked, []).append(node)
    return found


async def test_equal_leaves_of_a_plan_are_asked_once_and_both_stand_in_the_trace(toy):
    world = toy(KNOWN)
    trace = await world.executor().run("q", plan=PLAN, strategy="compound")
    assert sorted(world.asked) == sorted(KNOWN) and trace.outcome == "answered"
    first, second = leaves(trace)["Who directed A?"]
    assert second.detail["shared_from"] == first.id and "shared_from" not in first.detail
    assert (second.answers, second.sentence, second.documents) == (first.answers, first.sentence, first.documents)
    assert second.usage == Usage() != first.usage
    assert trace.usage.retrievals == trace.usage.generator_calls == 3
    assert trace.answers == ["Ayr", "1950"]


async def test_leaves_that_become_equal_when_their_values_are_known_are_asked_once(toy):
    world = toy({"Who directed A?": ["Ann"], "Who wrote A?": ["Ann"], "Where was Ann born?": ["Ayr"]})
    plan = "Who directed A? * Where was {director} born? + Who wrote A? * Where was {writer} born?"
    trace = await world.executor().run("q", plan=plan, strategy="compound")
    assert world.asked.count("Where was Ann born?") == 1
    assert [bool(node.detail.get("shared_from")) for node in leaves(trace)["Where was Ann born?"]] == [False, True]


async def test_who_shares_waits_on_no_slot_and_adds_nothing_to_the_critical_path(toy):
    world = toy({"Who directed A?": ["Ann"]})
    world.gate("Who directed A?")
    run = asyncio.create_task(world.executor(concurrency=1).run("q", plan="Who directed A? + Who directed A?"))
    await world.running("Who directed A?")
    world.release("Who directed A?")
    trace = await run
    assert [node.status for node in leaves(trace)["Who directed A?"]] == ["ok", "ok"]
    assert trace.critical_path_ms <= trace.wall_ms


async def test_a_failure_is_shared_too(toy):
    world = toy({"Who directed A?": RuntimeError("index torn")})
    trace = await world.executor().run("q", plan=PLAN)
    nodes = leaves(trace)["Who directed A?"]
    assert world.asked == ["Who directed A?"]
    assert [(node.status, node.error) for node in nodes] == [("failed", "RuntimeError: index torn")] * 2


async def test_an_edited_plan_asks_only_what_has_changed(toy):
    world = toy({**KNOWN, "Who is Ann married to?": ["Bob"]})
    trace = await world.executor().run("q", plan=PLAN)
    world.asked.clear()
    edited = PLAN.replace("When was {director} born?", "Who is {director} married to?")
    again = await world.executor().run("q", plan=edited, reuse=Trace.from_json(json.loads(json.dumps(trace.to_json()))))
    assert world.asked == ["Who is Ann married to?"] and again.usage.retrievals == 1
    [reused] = leaves(again)["Where was Ann born?"]
    [earlier] = leaves(trace)["Where was Ann born?"]
    assert reused.detail["reused_from"] == earlier.id and reused.usage == Usage()
    assert (reused.answers, reused.documents) == (earlier.answers, earlier.documents)
    assert again.answers == ["Ayr", "Bob"] and again.outcome == "answered"


async def test_a_leaf_whose_value_has_changed_is_asked_again(toy):
    world = toy({**KNOWN, "Who directed B?": ["Bob"], "Where was Bob born?": ["Rye"]})
    plan = "Who directed A? * Where was {director} born?"
    trace = await world.executor().run("q", plan=plan)
    world.asked.clear()
    again = await world.executor().run("q", plan=plan.replace("A?", "B?"), reuse=trace)
    assert world.asked == ["Who directed B?", "Where was Bob born?"] and again.answers == ["Rye"]


async def test_what_failed_in_the_earlier_trace_is_asked_again(toy):
    world = toy({"Who wrote A?": ["Ann"], "Who wrote B?": RuntimeError("torn")})
    trace = await world.executor().run("q", plan="Who wrote A? + Who wrote B?")
    world.knowledge = {"Who wrote B?": ["Bob"]}
    world.asked.clear()
    again = await world.executor().run("q", plan=trace.plan, reuse=trace, strategy="compound")
    assert world.asked == ["Who wrote B?"] and again.answers == ["Ann", "Bob"]


async def test_the_loop_reuses_its_steps_as_well(toy):
    outputs = {"refine": ["Who wrote A?", "Who wrote A?"], "end": "yes"}
    world = toy({"Who wrote A?": ["Ann"]}, outputs)
    trace = await world.executor().run("q", strategy="iterate")
    again = await world.executor().run("q", strategy="iterate", reuse=trace)
    assert world.asked == ["Who wrote A?"] and again.answers == ["Ann"]


def test_a_trace_of_the_first_schema_is_read_and_one_of_a_later_is_refused():
    trace = Trace("q", "auto")
    first = {k: v for k, v in trace.to_json().items() if k != "plan_language"} | {"schema": 1}
    assert Trace.from_json(first) == trace
    with pytest.raises(DataError, match="schema 99"):
        Trace.from_json({**first, "schema": 99})
    for wrong in ({}, {"nodes": [1]}, {**first, "colour": "red"}, {**first, "nodes": [{"id": "1"}]}):
        with pytest.raises(DataError, match="no trace"):
            Trace.from_json(wrong)
