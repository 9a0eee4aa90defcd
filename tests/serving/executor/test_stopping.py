"""Deadlines, cancellation and many questions at a time: nothing is left running and nothing mixes."""

import asyncio

import pytest

from revelator.errors import DeadlineExceeded

FOREVER = "Who is never found?"


async def tasks_besides_this_one() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def pass_time(monkeypatch, seconds: float) -> None:
    """Moves the event loop's clock forward."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


async def stopped_at_its_deadline(world, monkeypatch, plan: str, read: str):
    """The trace of a plan whose deadline comes once this question has been read."""
    run = asyncio.create_task(world.executor(deadline_ms=60_000).run("q", plan=plan))
    await world.running(f"read: {read}", *world.gates)
    pass_time(monkeypatch, 120)
    return await run


async def test_a_deadline_with_nothing_found_is_raised_and_leaves_no_call_running(toy):
    world = toy()
    world.gate(FOREVER)
    with pytest.raises(DeadlineExceeded, match="30 ms"):
        await world.executor().run("q", plan=FOREVER, deadline_ms=30)
    assert world.asked == [FOREVER] and world.live == 0
    assert await tasks_besides_this_one() == []


async def test_at_the_deadline_what_was_found_is_a_partial_answer(toy, monkeypatch):
    world = toy({"Who wrote A?": ["p"]})
    world.gate(FOREVER)
    plan = f"Who wrote A? + {FOREVER} * Who met {{person}}?"
    trace = await stopped_at_its_deadline(world, monkeypatch, plan, "Who wrote A?")
    assert trace.outcome == "partial" and trace.deadline_exceeded and trace.answers == ["p"]
    states = {node.question: (node.status, node.error) for node in trace.nodes if node.kind == "atomic"}
    assert states["Who wrote A?"] == ("ok", None)
    assert states[FOREVER] == ("failed", "stopped before it was done")
    assert states["Who met {person}?"] == ("skipped", "not reached")
    assert world.live == 0 and await tasks_besides_this_one() == []


async def test_a_deadline_in_the_middle_of_a_fan_out_keeps_the_members_that_are_done(toy, monkeypatch):
    world = toy({"Which films did X direct?": ["A", "B"], "Who wrote A?": ["p"]})
    world.gate("Who wrote B?")
    plan = "Which films did X direct? * Who wrote {film}?"
    trace = await stopped_at_its_deadline(world, monkeypatch, plan, "Who wrote A?")
    assert trace.deadline_exceeded and trace.answers == ["p"]
    assert trace.nodes[2].detail["without_answer"] == ["3.2"]


async def test_the_deadline_of_a_request_cannot_exceed_the_limit(toy):
    world = toy()
    world.gate(FOREVER)
    with pytest.raises(DeadlineExceeded, match="20 ms") as error:
        await world.executor(deadline_ms=20).run("q", plan=FOREVER, deadline_ms=1e9)
    assert "here at most 20: `limits: {deadline_ms: N}` in serving.yaml raises it" in str(error.value.hint)


@pytest.mark.parametrize("strategy", ["single", "compound", "compile", "iterate"])
async def test_cancelling_a_question_reaches_every_call(toy, strategy):
    parts = [f"Who is {n}?" for n in range(5)]
    outputs = {"decompose": str(parts).replace("'", '"'), "translate_bnf": " + ".join(parts), "refine": parts[0]}
    world = toy(outputs=outputs)
    world.gate("Who are they?", *parts)
    run = asyncio.create_task(world.executor().run("Who are they?", strategy=strategy))
    asked = {"single": ["Who are they?"], "iterate": parts[:1]}.get(strategy, parts)
    await world.running(*asked)
    assert world.live == len(asked)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert world.live == 0 and await tasks_besides_this_one() == []


async def test_fifty_questions_at_a_time_do_not_mix(toy):
    knowledge = {}
    for n in range(50):
        knowledge |= {f"Who wrote book {n}?": [f"Author {n}"], f"When was Author {n} born?": [str(1000 + n)]}
        knowledge |= {f"Where is town {n}?": [f"County {n}"]}
    world = toy(knowledge)
    executor = world.executor()

    def plan(n: int) -> str:
        return f"Where is town {n}? + Who wrote book {n}? * When was {{author}} born?"

    traces = await asyncio.gather(*(executor.run(f"question {n}", plan=plan(n)) for n in range(50)))
    for n, trace in enumerate(traces):
        assert trace.question == f"question {n}" and trace.answers == [f"County {n}", str(1000 + n)]
        assert [node.id for node in trace.nodes] == ["1", "2", "3", "4", "5"]
        assert all(str(n) in (node.asked or str(n)) for node in trace.nodes)
    assert len(world.asked) == 150 and world.live == 0


async def test_a_question_that_is_stopped_does_not_disturb_the_others(toy):
    world = toy({"Who wrote A?": ["p"]})
    world.gate(FOREVER, "Who wrote A?")
    executor = world.executor()
    stopped = asyncio.create_task(executor.run("q", plan=FOREVER))
    other = asyncio.create_task(executor.run("q", plan="Who wrote A?"))
    await world.running(FOREVER, "Who wrote A?")
    stopped.cancel()
    world.release("Who wrote A?")
    assert (await other).answers == ["p"]
    with pytest.raises(asyncio.CancelledError):
        await stopped
