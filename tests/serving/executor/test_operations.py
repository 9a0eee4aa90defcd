"""Leaves that compare, count, intersect or add up what earlier leaves gave: by code where the values allow it."""

import asyncio

import pytest

from revelator.plans import parse
from serving.merge.parts import find_branches, find_chains_before
from serving.merge.wording import can_be_read

DIRECTORS = "(Who directed A? + Who directed B?)"
BIRTHS = "(When was {a} born? + When was {b} born?)"
FILMS = "Which films did X direct?"
WORLD = {
    "Who directed A?": ["Ann Lee"],
    "Who directed B?": ["Bob Ray"],
    "When was Ann Lee born?": ["3 May 1950"],
    "When was Bob Ray born?": ["1949"],
    FILMS: ["Up", "Down", "Out"],
    "Which films did Y direct?": ["out", "In", "Up"],
    "Which films did Z direct?": ["Up (film)", "Off"],
    "When was Up released?": ["1960"],
    "When was Down released?": ["3 May 1950"],
    "When was Out released?": ["1949"],
    "How long is Up?": ["90 min"],
    "How long is Down?": ["90 min"],
    "How long is Out?": ["100 min"],
    "How long is A?": ["120 minutes"],
    "How long is B?": ["1 hour 30 minutes"],
    "When was A released?": ["3 May 1950"],
    "When was B released?": ["10 June 1950"],
    "Which country is A from?": ["the U.S."],
    "Which country is B from?": ["American"],
}


@pytest.mark.parametrize(
    ("plan", "answers", "method"),
    [
        (f"{DIRECTORS} * {BIRTHS} * Which of {{a}} and {{b}} was born earlier?", ["Bob Ray"], "comparison: earlier"),
        (f"{DIRECTORS} * {BIRTHS} * Was {{a}} born before {{b}}?", ["no"], "comparison: before"),
        (f"{DIRECTORS} * {BIRTHS} * Who is younger, {{a}} or {{b}}?", ["Ann Lee"], "comparison: younger"),
        ("(When was A released? + When was B released?) * Which of {x} and {y} is later?", ["10 June 1950"],
         "comparison: later"),
        ("(When was A released? + When was B released?) * Is {x} earlier than {y}?", ["yes"], "comparison: earlier"),
        ("(When was A released? + When was B released?) * How many days lie between {x} and {y}?", ["38"],
         "difference"),
        ("(How long is A? + How long is B?) * What is the sum of {x} and {y}?", ["210 minutes"], "sum"),
        ("(How long is A? + How long is B?) * What is the average of {x} and {y}?", ["105 minutes"], "average"),
        ("(How long is A? + How long is B?) * How many hours do {x} and {y} take in total?", ["3.5"], "sum"),
        ("(How long is A? + How long is B?) * What is the difference between {x} and {y} in minutes?", ["30"],
         "difference"),
        ("(How long is A? + How long is B?) * How much longer is {x} than {y}?", ["30 minutes"], "difference"),
        (f"{FILMS} * How long is {{film}}? * What is the total of {{lengths}}?", ["280 min"], "sum"),
        (f"{FILMS} * How long is {{film}}? * What is the average of {{lengths}}?", ["93.333333 min"], "average"),
        (f"{FILMS} * How long is {{film}}? * Which of {{lengths}} is the shortest?", ["90 min"],
         "superlative: shortest"),
        (f"{FILMS} * How many {{films}} are there?", ["3"], "count"),
        (f"{FILMS} * When was {{film}} released? * How many of {{films}} came out after 1949?", ["2"], "count: after"),
        (f"{FILMS} * When was {{film}} released? * Which of {{films}} came out first?", ["Out"], "superlative: first"),
        (f"{FILMS} * When was {{film}} released? * Which of {{dates}} is the earliest?", ["1949"],
         "superlative: earliest"),
        (f"({FILMS} + Which films did Y direct?) * Which of {{films_x}} are also among {{films_y}}?", ["Up", "Out"],
         "in common"),
        (f"({FILMS} + Which films did Y direct?) * Which of {{films_x}} are not among {{films_y}}?", ["Down"],
         "in common"),
        (f"({FILMS} + Which films did Y direct?) * How many of {{films_x}} are in {{films_y}}?", ["2"],
         "count: in common"),
        ("(Which country is A from? + Which country is B from?) * Are {a} and {b} the same country?", ["yes"], "same"),
        (f"({FILMS} + Which films did Y direct?) * Are {{films_x}} and {{films_y}} the same?", ["no"], "same"),
    ],
)  # fmt: skip
async def test_an_operation_over_earlier_answers_is_done_by_code(toy, plan, answers, method):
    world = toy(WORLD)
    trace = await world.executor().run("q", plan=plan)
    last = [node for node in trace.nodes if node.kind == "atomic"][-1]
    assert (last.answers, last.detail["method"]) == (answers, method)
    assert last.usage.retrievals == 0 and last.documents == [] and last.inputs
    assert trace.answers == answers and trace.outcome == "answered"
    assert last.asked not in world.asked


@pytest.mark.parametrize(
    ("plan", "asked"),
    [
        (f"{DIRECTORS} * Which of {{a}} and {{b}} was born earlier?", "Which of Ann Lee and Bob Ray was born earlier?"),
        (f"{DIRECTORS} * Are {{a}} and {{b}} from the same country?", "Are Ann Lee and Bob Ray from the same country?"),
        (f"{DIRECTORS} * Are {{a}} and {{b}} the same age?", "Are Ann Lee and Bob Ray the same age?"),
        ("Who directed A? * How many films did {director} make?", "How many films did Ann Lee make?"),
        ("Who directed A? * What was {director}'s first film?", "What was Ann Lee's first film?"),
        (f"{FILMS} * How many of {{films}} are comedies?", "How many of Up, Down and Out are comedies?"),
        (f"{FILMS} * How many people saw {{films}}?", "How many people saw Up, Down and Out?"),
        (f"{FILMS} * Which of {{films}} is the longest?", "Which of Up, Down and Out is the longest?"),
        (f"{DIRECTORS} * What do {{a}} and {{b}} have in common?", "What do Ann Lee and Bob Ray have in common?"),
        (
            f"({FILMS} + Which films did Z direct?) * Which of {{films_x}} are also among {{films_z}}?",
            "Which of Up, Down and Out are also among Up (film) and Off?",
        ),
        (
            f"({FILMS} + Which films did Z direct?) * How many of {{films_x}} are also among {{films_z}}?",
            "How many of Up, Down and Out are also among Up (film) and Off?",
        ),
        (
            f"{FILMS} * When was {{film}} released? * How many of {{films}} did not come out after 1949?",
            "How many of Up, Down and Out did not come out after 1949?",
        ),
    ],
)
async def test_what_the_values_do_not_say_is_looked_up_and_read(toy, plan, asked):
    world = toy({**WORLD, asked: ["read"]})
    trace = await world.executor().run("q", plan=plan)
    last = [node for node in trace.nodes if node.kind == "atomic"][-1]
    assert (last.asked, last.answers) == (asked, ["read"]) and asked in world.asked
    assert last.detail.get("method", "generator") == "generator"


@pytest.mark.parametrize(
    ("first", "second"), [("Apollo 13", "Apollo 11"), ("1984", "2012"), ("Seven", "Route 66"), ("Nine", "8½ Women")]
)
async def test_a_name_with_a_number_in_it_is_no_number(toy, first, second):
    asked = f"Which of {first} and {second} is larger?"
    world = toy({"Which film is A?": [first], "Which film is B?": [second], asked: ["read"]})
    plan = "(Which film is A? + Which film is B?) * Which of {a} and {b} is larger?"
    trace = await world.executor().run("q", plan=plan)
    assert trace.answers == ["read"]


async def test_an_operation_waits_for_what_came_of_its_values_and_a_failure_there_leaves_it_to_the_generator(toy):
    asked = "Which of Ann Lee and Bob Ray was born earlier?"
    world = toy({**WORLD, "When was Bob Ray born?": RuntimeError("torn"), asked: ["Ann Lee"]})
    plan = f"{DIRECTORS} * {BIRTHS} * Which of {{a}} and {{b}} was born earlier?"
    trace = await world.executor().run("q", plan=plan)
    assert trace.answers == ["Ann Lee"] and trace.nodes[-2].detail["method"] == "generator"
    assert trace.outcome == "partial"


@pytest.mark.parametrize(
    ("question", "rest"),
    [
        ("How many of the films that X directed were released after 1949?", ""),
        ("Which of the films that X directed is the earliest?", ""),
        ("When was the earliest of the films that X directed released?", ""),
        ("q", " * How many of {films} came out after 1948?"),
        ("q", " * Which of {years} is the earliest?"),
    ],
)
@pytest.mark.parametrize("limits", [{}, {"fan_out": 2}])
@pytest.mark.parametrize("unanswered", [[], ["When was Up released?"], ["When was Out released?"]])
async def test_a_fan_out_that_is_cut_or_fails_in_part_is_never_operated_on(toy, question, rest, limits, unanswered):
    world = toy({**WORLD, **dict.fromkeys(unanswered, ())})
    trace = await world.executor(**limits).run(question, plan=f"{FILMS} * When was {{film}} released?{rest}")
    operated = [node for node in trace.nodes if node.kind in ("merge", "atomic") and "method" in node.detail]
    methods = [node.detail["method"] for node in operated]
    sure = not limits and not unanswered
    assert any(method not in ("generator", "last stage", "all parts") for method in methods) is sure
    assert (trace.outcome == "answered") is sure
    if not sure and not rest:
        assert [request.mode for request in world.requests][-1] == "merge"


async def test_what_is_sure_of_a_whole_list_is_computed_though_something_after_it_failed(toy):
    world = toy({**WORLD, "When was Up released?": ()})
    trace = await world.executor().run(
        "q", plan=f"{FILMS} * When was {{film}} released? * How many {{films}} are there?"
    )
    assert (trace.answers, trace.outcome) == (["3"], "partial")


async def test_a_number_without_bounds_in_an_answer_harms_nothing_but_its_own_operation(toy):
    world = toy({"How long is A?": ["9" * 400], "How long is B?": ["3"]})
    plan = "(How long is A? + How long is B?) * What is the sum of {x} and {y}?"
    trace = await world.executor().run("What is the total of A and B?", plan=plan)
    assert [node.status for node in trace.nodes if node.question.startswith("How long")] == ["ok", "ok"]
    assert "sum" not in [node.detail.get("method") for node in trace.nodes]


async def test_a_computed_leaf_is_computed_again_when_an_earlier_trace_is_reused(toy):
    world = toy(dict(WORLD))
    plan = f"{DIRECTORS} * {BIRTHS} * Which of {{a}} and {{b}} was born earlier?"
    trace = await world.executor().run("q", plan=plan)
    world.knowledge["When did Bob Ray come into the world?"] = ["1960"]
    edited = plan.replace("When was {b} born?", "When did {b} come into the world?")
    again = await world.executor().run("q", plan=edited, reuse=trace)
    assert trace.answers == ["Bob Ray"] and again.answers == ["Ann Lee"] and again.usage.retrievals == 1


def test_the_chains_before_a_leaf_lead_through_everything_on_its_left():
    plan = parse("(a + b) * (c {x} + d {y} * e {z}) * f {x}")
    assert find_branches(plan) == [[0, 1, 2, 3, 4, 5]]
    assert find_chains_before(plan, 5) == [[0, 1, 2], [0, 1, 3, 4]]
    assert find_chains_before(plan, 4) == [[0, 1, 3]]
    assert find_chains_before(plan, 2) == [[0], [1]]
    assert find_chains_before(plan, 0) == []


async def test_an_operation_waits_for_the_chains_of_its_values_and_for_no_sibling(toy):
    world = toy({"Who made A?": ["p"], "Who made B?": ["q"], "Where is C?": ["z"], "Are p and q related?": ["yes"]})
    world.gate("Where is C?")
    plan = "(Who made A? + Who made B? + Where is C?) * Are {a} and {b} related?"
    running = asyncio.create_task(world.executor().run("q", plan=plan))
    await world.running("Where is C?", "Are p and q related?")
    world.release("Where is C?")
    assert (await running).outcome == "answered"


@pytest.mark.parametrize(
    "plan", ["What is A? + What is B?", "(What is A? + What is B?) * What is the total of {a} and {b}?"]
)
async def test_a_number_beyond_all_reckoning_ends_no_question(toy, plan):
    world = toy({"What is A?": ["9" * 400], "What is B?": ["1" + 200 * "0"]})
    trace = await world.executor().run("What is the total of A and B?", plan=plan)
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
    counted = await world.executor().run("q", plan="Which films did Ada direct? * How many of {films} are there?")
    assert counted.answers == ["2"]


async def test_the_loop_and_the_generator_are_told_each_answer_by_itself(toy):
    outputs = {"refine": ["Which films?", "Which films?"], "end": "no"}
    known = {"Which films?": ("Semi; Colon", "Harrow"), "merge: q": ("Semi; Colon",)}
    world = toy(known, outputs)
    trace = await world.executor().run("q", strategy="iterate")
    assert [step.answers for step in world.requests[-1].steps] == [("Semi; Colon", "Harrow")]
    assert trace.answers == ["Semi; Colon"]


@pytest.mark.parametrize(
    ("question", "answers", "expected"),
    [
        ("Which is longer, the Ouse or the Tay?", ["the Tay"], True),
        ("Which is longer, the Ouse or the Tay?", ["188 km"], False),
        ("Do the Ouse and the Tay rise in the same country?", ["no"], True),
        ("Do the Ouse and the Tay rise in the same country?", ["Scotland"], False),
        ("Which sea do both the Ouse and the Tay reach?", ["the North Sea"], True),
        ("How many bridges do the Ouse and the Tay have in total?", ["12"], False),
        ("How much longer is the Ouse than the Tay?", ["188 km"], False),
    ],
)
def test_a_passage_says_only_what_the_question_can_be_answered_with(
    question: str, answers: list[str], expected: bool
) -> None:
    parts = [["How long is the Ouse?"], ["How long is the Tay?"]]
    assert can_be_read(question, parts, answers) is expected
