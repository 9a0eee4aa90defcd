"""What an operation waits for, and what it and the loop are given."""

from __future__ import annotations

import asyncio

WORLD = {
    "Who directed A?": ["Ann Lee"],
    "Who directed B?": ["Bob Ray"],
    "When was Ann Lee born?": ["3 May 1950"],
    "When was Bob Ray born?": ["1949"],
}
OLDER = "(Who directed A? * When was {1} born?) + (Who directed B? * When was {3} born?) => argmin {1} {3}"


async def test_an_operation_is_done_again_when_an_earlier_trace_is_reused(toy):
    world = toy(dict(WORLD))
    trace = await world.executor().run("q", plan=OLDER)
    world.knowledge["When did Bob Ray come into the world?"] = ["1960"]
    edited = OLDER.replace("When was {3} born?", "When did {3} come into the world?")
    again = await world.executor().run("q", plan=edited, reuse=trace)
    assert trace.answers == ["Bob Ray"] and again.answers == ["Ann Lee"] and again.usage.retrievals == 1


async def test_an_operation_waits_for_its_parts_and_for_no_sibling(toy):
    world = toy({**WORLD, "Where is C?": ["z"], "Where is Bob Ray?": ["y"]})
    world.gate("Where is C?")
    running = asyncio.create_task(world.executor().run("q", plan=f"({OLDER}) * Where is {{5}}? + Where is C?"))
    await world.running("Where is C?", "Where is Bob Ray?")
    world.release("Where is C?")
    assert (await running).answers == ["y", "z"]


async def test_a_number_beyond_all_reckoning_ends_no_question(toy):
    world = toy({"What is A?": ["9" * 400], "What is B?": ["1" + 200 * "0"]})
    trace = await world.executor().run("q", plan="What is A? + What is B? => sum")
    assert ["9" * 400] in [node.answers for node in trace.nodes]


async def test_a_title_with_a_semicolon_is_one_answer_from_the_reader_to_the_end(toy):
    known = {
        "Which films did Ada direct?": ("Semi; Colon", "Harrow"),
        "Who wrote Semi; Colon?": ("Bo; Bee",),
        "Who wrote Harrow?": ("Cy",),
    }
    world = toy(known)
    plan = "Which films did Ada direct? * Who wrote {film}?"
    trace = await world.executor().run("Who wrote the films that Ada directed?", plan=plan)
    assert trace.nodes[0].kind == "dependent" and trace.answers == ["Bo; Bee", "Cy"]
    assert world.asked == list(known)
    counted = await world.executor().run("q", plan="Which films did Ada direct? => count")
    assert counted.answers == ["2"]


async def test_the_loop_and_the_generator_are_told_each_answer_by_itself(toy):
    outputs = {"refine": ["Which films?", "Which films?"], "end": "no"}
    known = {"Which films?": ("Semi; Colon", "Harrow"), "merge: q": ("Semi; Colon",)}
    world = toy(known, outputs)
    trace = await world.executor().run("q", strategy="iterate")
    assert [step.answers for step in world.requests[-1].steps] == [("Semi; Colon", "Harrow")]
    assert trace.answers == ["Semi; Colon"]
