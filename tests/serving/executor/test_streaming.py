"""The events of a question: in causal order, and replayed they are its trace."""

import asyncio
import json
import random
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.errors import ExpressionError, PlanError, Unavailable
from revelator.limits import Limits
from revelator.plans import render
from revelator.trace import Event, Replay, Trace, replay
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from tests.serving.executor.test_plan_laws import plans
from tests.serving.executor.test_stopping import pass_time
from tests.serving.executor.world import Toy, stream

ENDS = ("answered", "unanswered", "skipped", "failed")


class Chancy(Toy):
    """Answers anything, some of it with several values, nothing or an error; `chance` decides in which order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)

    async def search(self, query, k, scope=None):
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.1:
            raise self.chance.choice([RuntimeError("torn"), OSError("gone")])
        return [] if self.chance.random() < 0.1 else await super().search(query, min(k, 2))

    async def answer(self, request):
        self.knowledge = {request.question: [f"<{request.question[:9]}{n}>" for n in range(self.chance.randrange(3))]}
        return await super().answer(request)


def told(world: Toy, question: str, **options) -> tuple[list[Event], Trace]:
    """Events as JSON carries them, and the trace that the executor itself has at the end."""

    async def main():
        held: list[Event] = []
        trace = await Executor(world, Sources.of_index(world), world, Limits(leaves=64, fan_out=3)).run(
            question, listener=held.append, **options
        )
        return [Event.from_json(json.loads(json.dumps(event.to_json()))) for event in held], trace

    return asyncio.run(main())


@given(plans(7), st.integers())
@settings(max_examples=80)
def test_events_come_in_causal_order_and_replayed_are_the_trace(plan, seed):
    events, trace = told(Chancy(seed), "q", plan=render(plan))
    assert replay(events) == trace
    kinds = [event.kind for event in events]
    assert kinds[0] == "begun" and kinds[-1] == "finished"
    assert [event.at_ms for event in events] == sorted(event.at_ms for event in events)
    place = {(event.node, event.kind): number for number, event in enumerate(events)}
    for node in trace.nodes:
        ends = [place[node.id, kind] for kind in ENDS if (node.id, kind) in place]
        assert len(ends) == 1 and place[node.id, "opened"] < ends[0]
        if node.parent:
            assert place[node.parent, "opened"] < place[node.id, "opened"]
        steps = [place[key] for kind in ("started", "retrieved", "judged") if (key := (node.id, kind)) in place]
        assert [*steps, *ends] == sorted([*steps, *ends])
        for producer in node.inputs.values():
            if (producer, "started") in place:  # a frame around a fan-out is closed with the plan
                assert place[producer, "answered"] < place[node.id, "started"]


async def test_events_arrive_while_the_question_runs(toy):
    world = toy({"Who wrote A?": ["Ann"], "Who wrote B?": ["Bob"]})
    world.gate("Who wrote A?")
    growing = Replay()
    async with aclosing(stream(world.executor(), "q", plan="Who wrote A? + Who wrote B?")) as events:
        async for event in events:
            growing.add(event)
            if event.kind == "planned":
                assert growing.build().plan == "Who wrote A? + Who wrote B?"
            if event.kind == "judged" and event.node == "3":
                assert {p.relevance for p in growing.build().nodes[2].documents} == {0.9}
            if event.kind == "answered" and event.node == "3":
                assert [node.status for node in growing.build().nodes] == ["waiting", "running", "ok"]
                world.release("Who wrote A?")
    assert growing.build().outcome == "answered"


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [
        ("auto", ["route", "atomic"]),
        ("single", ["atomic"]),
        ("iterate", ["refine", "atomic", "end", "merge"]),
        ("compile", ["translate", "atomic"]),
    ],
)
async def test_every_strategy_tells_its_boxes(toy, strategy, kinds):
    outputs = {"route": "straightforward", "refine": "Who?", "end": "yes", "translate_bnf": "Who?"}
    world = toy({"Who?": ["p"]}, outputs)
    events = [event async for event in stream(world.executor(), "Who?", strategy=strategy)]
    trace = replay(events)
    assert [node.kind for node in trace.nodes] == kinds and trace.answers == ["p"]


async def test_closing_the_stream_cancels_the_question(toy):
    world = toy()
    world.gate("Who is never found?")
    async with aclosing(stream(world.executor(), "q", plan="Who is never found?")) as events:
        async for event in events:
            if event.kind == "started":
                await world.running("Who is never found?")
                assert world.live == 1
                break
    assert world.live == 0 and len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("strategy", "plan", "error"),
    [
        ("auto", "Who (is", ExpressionError),
        ("auto", "Who is {x}?", PlanError),
        ("auto", '"" AND "mill"', PlanError),
        ("auto", r'"\ud800"', PlanError),
        ("logic", '"a" AND', ExpressionError),
        ("logic", '"a" AND NOT "a"', PlanError),
        ("logic", r'"\ud800" OR "mill"', PlanError),
        ("atomic", "{", ExpressionError),
        ("atomic", '{"question": "[9]?", "search": {"name": "x"}}', PlanError),
    ],
)
async def test_a_plan_that_cannot_be_run_is_refused_before_the_question_begins(toy, strategy, plan, error):
    with pytest.raises(error):
        async for _ in stream(toy().executor(), "q", plan=plan, strategy=strategy):
            raise AssertionError("nothing was to be told")


async def test_an_error_is_raised_after_the_events_before_it(toy):
    world, kinds = toy({"Who?": Unavailable("down")}), []
    with pytest.raises(Unavailable):
        async for event in stream(world.executor(), "q", plan="Who?"):
            kinds.append(event.kind)
    assert kinds[-1] == "failed" and "finished" not in kinds


async def test_a_deadline_ends_the_stream_with_the_partial_trace(toy, monkeypatch):
    world = toy({"Who wrote A?": ["Ann"]})
    world.gate("Who is never found?")
    plan = "Who wrote A? + Who is never found? * Who met {person}?"
    events = []
    async for event in stream(world.executor(deadline_ms=60_000), "q", plan=plan):
        events.append(event)
        if event.kind == "answered" and event.node == "2":
            pass_time(monkeypatch, 120)
    ends = {event.node: event.kind for event in events if event.kind in ENDS}
    trace = replay(events)
    assert trace.deadline_exceeded and trace.answers == ["Ann"]
    assert [ends[node.id] for node in trace.nodes if node.kind == "atomic"] == ["answered", "failed", "skipped"]
