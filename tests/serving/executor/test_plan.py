"""Plans run by data dependence: what waits for what, what is asked with which value, and what a failure reaches."""

import asyncio
import json
from dataclasses import replace

import pytest

from revelator.errors import Unavailable
from revelator.limits import count_stages
from revelator.plans import parse
from revelator.trace import Trace
from tests.serving.executor.world import Toy


async def test_leaves_of_a_list_run_at_the_same_time(toy):
    world = toy({"Who wrote A?": ["p"], "Who wrote B?": ["q"]})
    world.gate("Who wrote A?", "Who wrote B?")
    run = asyncio.create_task(world.executor().run("Who wrote what?", plan="Who wrote A? + Who wrote B?"))
    await world.running("Who wrote A?", "Who wrote B?")
    assert world.live == 2
    world.release("Who wrote A?")
    world.release("Who wrote B?")
    trace = await run
    assert trace.outcome == "answered" and trace.answers == ["p", "q"]


async def test_a_dependent_leaf_is_asked_after_and_with_the_value_before_it(toy):
    world = toy({"Who wrote A?": ["Ann"], "When was Ann born?": ["1950"]})
    world.gate("Who wrote A?")
    run = asyncio.create_task(world.executor().run("q", plan="Who wrote A? * When was {writer} born?"))
    await world.running("Who wrote A?")
    assert world.asked == ["Who wrote A?"]
    world.release("Who wrote A?")
    trace = await run
    assert world.asked == ["Who wrote A?", "When was Ann born?"]
    assert trace.answers == ["1950"]
    assert trace.nodes[2].inputs == {"writer": "2"} and trace.nodes[2].question == "When was {writer} born?"


async def test_a_plan_answers_with_its_last_stage_and_a_list_with_each_of_its_parts(toy):
    world = toy({"Who wrote A?": ["Ann"], "When was Ann born?": ["1950"]})
    for plan, answers in (
        ("Who wrote A? * When was {1} born?", ["1950"]),
        ("Who wrote A? + Who wrote A? * When was {2} born?", ["Ann", "1950"]),
    ):
        assert (await world.executor().run("Who wrote A, and when was she born?", plan=plan)).answers == answers
    assert world.asked == ["Who wrote A?", "When was Ann born?"] * 2


async def test_a_stage_starts_while_an_unrelated_leaf_of_the_list_still_runs(toy):
    world = toy(
        {
            "Who wrote A?": ["Ann"],
            "Which town is Ann from?": ["Ayr"],
            "Which river is in C?": ["Cam"],
            "Does the Cam flow through Ayr?": ["no"],
        }
    )
    world.gate("Which river is in C?")
    plan = "(Who wrote A? * Which town is {writer} from? + Which river is in C?) * Does the {3} flow through {2}?"
    run = asyncio.create_task(world.executor().run("q", plan=plan))
    await world.running("Which river is in C?", "Which town is Ann from?")
    world.release("Which river is in C?")
    trace = await run
    assert trace.answers == ["no"] and trace.outcome == "answered"


async def test_each_value_of_a_fan_out_goes_on_without_waiting_for_the_others(toy):
    world = toy(
        {
            "Which films did X direct?": ["A", "B"],
            "Who wrote A?": ["Ann"],
            "Who wrote B?": ["Bob"],
            "When was Ann born?": ["1950"],
            "When was Bob born?": ["1940"],
        }
    )
    world.gate("Who wrote A?")
    plan = "Which films did X direct? * Who wrote {film}? * When was {writer} born?"
    run = asyncio.create_task(world.executor().run("q", plan=plan))
    await world.running("Who wrote A?", "When was Bob born?")
    assert "When was Ann born?" not in world.asked
    world.release("Who wrote A?")
    trace = await run
    assert trace.answers == ["1950", "1940"]
    members = {node.id: (node.parent, node.asked) for node in trace.nodes if "." in node.id}
    assert members == {
        "4.1": ("4", "Who wrote A?"),
        "4.2": ("4", "Who wrote B?"),
        "5.1": ("5", "When was Ann born?"),
        "5.2": ("5", "When was Bob born?"),
    }


async def test_values_of_one_ancestor_stay_together(toy):
    world = toy(
        {
            "Which films did X direct?": ["A", "B"],
            "Who wrote A?": ["Ann"],
            "Who wrote B?": ["Bob"],
            "Did Ann act in A?": ["yes"],
            "Did Bob act in B?": ["no"],
        }
    )
    plan = "Which films did X direct? * Who wrote {film}? * Did {writer} act in {film}?"
    trace = await world.executor().run("q", plan=plan)
    assert world.asked[-2:] == ["Did Ann act in A?", "Did Bob act in B?"]
    assert trace.outcome == "answered"


async def test_independent_values_are_asked_in_every_combination(toy):
    world = toy({"Which films are by X?": ["A", "B"], "Which actors are from Y?": ["p", "q"]})
    plan = "(Which films are by X? + Which actors are from Y?) * Did {2} play in {1}?"
    await world.executor().run("q", plan=plan)
    assert sorted(world.asked[2:]) == [f"Did {a} play in {f}?" for a in "pq" for f in "AB"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Which of {1*} is a comedy?", ["Which of A, B and C is a comedy?"]),
        ("Which of {1} is a comedy?", [f"Which of {f} is a comedy?" for f in "ABC"]),
        ("How many people saw {films}?", [f"How many people saw {f}?" for f in "ABC"]),
    ],
)
async def test_a_number_says_whether_a_leaf_takes_one_value_or_all_and_a_name_takes_one(toy, text, asked):
    world = toy({"Which films did X direct?": ["A", "B", "C"]})
    await world.executor().run("q", plan=f"Which films did X direct? * {text}")
    assert world.asked[1:] == asked


async def test_a_leaf_takes_the_whole_list_of_one_placeholder_and_each_value_of_another(toy):
    world = toy({"Which films are by X?": ["A", "B"], "Which actors are from Y?": ["p", "q"]})
    plan = "(Which films are by X? + Which actors are from Y?) * Which of {1*} shows {2}?"
    await world.executor().run("q", plan=plan)
    assert world.asked[2:] == [f"Which of A and B shows {a}?" for a in "pq"]


async def test_fan_out_stops_at_its_limit_and_says_so(toy):
    world = toy({"Which films did X direct?": [str(n) for n in range(20)]})
    trace = await world.executor(fan_out=3).run("q", plan="Which films did X direct? * Who wrote {film}?")
    assert world.asked[1:] == ["Who wrote 0?", "Who wrote 1?", "Who wrote 2?"]
    assert "first 3" in trace.nodes[2].detail["truncated"]


async def test_a_fan_out_of_a_fan_out_shares_the_limit(toy):
    people = {f"Who acted in {f}?": [f"{f}{n}" for n in range(9)] for f in "ABC"}
    world = toy({"Which films did X direct?": ["A", "B", "C"], **people})
    plan = "Which films did X direct? * Who acted in {film}? * When was {actor} born?"
    await world.executor(fan_out=6).run("q", plan=plan)
    assert sorted(world.asked[4:]) == [f"When was {f}{n} born?" for f in "ABC" for n in range(2)]


async def test_concurrency_is_bounded_over_the_leaves_of_a_question(toy):
    questions = [f"Who wrote {n}?" for n in range(6)]
    world = toy({question: ["p"] for question in questions})
    world.gate(*questions)
    run = asyncio.create_task(world.executor(concurrency=2).run("q", plan=" + ".join(questions)))
    for number, question in enumerate(questions[:-1]):
        await world.running(*questions[: number + 2])
        assert world.live == 2
        world.release(question)
    world.release(questions[-1])
    await run
    assert len(world.asked) == 6


async def test_a_failed_leaf_is_recorded_what_needs_it_is_skipped_and_its_siblings_go_on(toy):
    world = toy({"Who wrote A?": RuntimeError("index torn"), "Who wrote B?": ["q"]})
    plan = "Who wrote A? * When was {writer} born? + Who wrote B?"
    trace = await world.executor().run("q", plan=plan, strategy="compound")
    status = {node.question: (node.status, node.error) for node in trace.nodes if node.kind == "atomic"}
    assert status["Who wrote A?"] == ("failed", "RuntimeError: index torn")
    assert status["When was {writer} born?"][0] == "skipped"
    assert status["Who wrote B?"] == ("ok", None)
    assert trace.outcome == "partial" and trace.answers == ["q"]
    assert "When was {writer} born?" not in world.asked


async def test_a_question_none_of_whose_leaves_is_answered_has_failed(toy):
    trace = await toy({"Who wrote B?": RuntimeError("x")}).executor().run("q", plan="Who wrote A? + Who wrote B?")
    assert trace.outcome == "failed" and trace.answers == []


async def test_a_service_that_is_down_for_every_leaf_is_raised(toy):
    down = Unavailable("the index is down")
    world = toy({"Who wrote A?": down, "Who wrote B?": down})
    with pytest.raises(Unavailable, match="index is down"):
        await world.executor().run("q", plan="(Who wrote A? + Who wrote B?) * Who met {writer}?")


async def test_a_service_that_is_down_for_some_leaves_leaves_a_partial_answer(toy):
    world = toy({"Who wrote A?": Unavailable("down"), "Who wrote B?": ["q"]})
    trace = await world.executor().run("q", plan="Who wrote A? + Who wrote B?")
    assert trace.outcome == "partial" and trace.answers == ["q"]


async def test_the_same_plan_gives_the_same_node_ids_in_whatever_order_its_leaves_end(toy):
    questions = ["Who wrote A?", "Who wrote B?", "Who wrote C?"]
    seen = []
    for order in (questions, questions[::-1]):
        world = toy({q: [q[-2]] for q in questions})
        world.gate(*questions)
        run = asyncio.create_task(world.executor().run("q", plan=" + ".join(questions)))
        await world.running(*questions)
        for question in order:
            world.release(question)
        trace = await run
        seen.append(([(n.id, n.kind, n.parent, n.answers) for n in trace.nodes], trace.answers))
    assert seen[0] == seen[1]


async def test_the_trace_adds_up_and_survives_json(toy):
    world = toy({"Which films did X direct?": ["A", "B"], "Who wrote A?": ["p"], "Who wrote B?": ["q"]})
    trace = await world.executor().run("q", plan="Which films did X direct? * Who wrote {film}?")
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace
    assert trace.usage.retrievals == trace.usage.generator_calls == 3 and trace.usage.model_calls == 30
    assert trace.usage.tokens_in == sum(node.usage.tokens_in for node in trace.nodes) > 0
    assert 0 < trace.critical_path_ms <= trace.wall_ms
    leaves = [node for node in trace.nodes if node.kind == "atomic"]
    assert all(0 <= node.started_ms <= node.ended_ms <= trace.wall_ms for node in trace.nodes)
    assert leaves[1].id == "3" and leaves[1].started_ms >= leaves[0].ended_ms


@pytest.mark.parametrize(
    ("plan", "stages"),
    [("a", 1), ("a + b", 1), ("a * b{x}", 2), ("(a + b * c {x}) * d {y}", 3), ("a * (b {x} + c {x} * d {y})", 3)],
)
def test_depth_is_the_number_of_stages_of_the_longest_chain(plan, stages):
    assert count_stages(parse(plan)) == stages


async def test_a_question_is_not_asked_about_a_verdict(toy):
    class Reader(Toy):
        async def answer(self, request):
            return replace(await super().answer(request), is_verdict=True)

    first, answer = "Does A stand?", "no"
    world = Reader({first: [answer], f"Where did {answer} study?": ["Ayr"]})
    trace = await world.executor().run("q", plan=f"{first} * Where did {{x}} study? * Who lives in {{town}}?")
    assert world.asked == [first]
    assert (trace.outcome, trace.answers) == ("unanswered", [])
    assert "“no” is a verdict on “Does A stand?”" in trace.reason
    assert [node.status for node in trace.nodes if node.kind == "atomic"] == ["ok", "unanswered", "skipped"]
    assert (await world.executor().run("q", plan=first, strategy="compound")).answers == [answer]
