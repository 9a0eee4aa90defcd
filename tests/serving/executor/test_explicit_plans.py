"""Plans that name their steps by number and say what is done with the answers: nothing is read from words."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from revelator.answers import explain_silence
from revelator.errors import PlanError
from revelator.trace_view import tree
from tests.serving.executor.world import Toy

WORLD = {
    "Who directed Jaws?": ["Spielberg"],
    "Who directed UHF?": ["Levey"],
    "When was Spielberg born?": ["18 December 1946"],
    "When was Levey born?": ["1951"],
    "Which dams are there?": ["Aya", "Bel", "Cor"],
    "How high is Aya?": ["20 m"],
    "How high is Bel?": ["30 m"],
    "How high is Cor?": ["10 m"],
    "How high was Aya in 1990?": ["19 m"],
    "How high was Bel in 1990?": ["18 m"],
    "How high was Cor in 1990?": ["10 m"],
    "Which rivers feed Aya, Bel and Cor?": ["Tay"],
}
FILMS = "(Who directed Jaws? * When was {1} born?) + (Who directed UHF? * When was {3} born?)"
HEIGHTS = "Which dams are there? * How high is {1}?"
GROWTH = "Which dams are there? * (How high is {1}? + How high was {1} in 1990?)"


@pytest.mark.parametrize(
    ("plan", "answers"),
    [
        (f"{FILMS} => argmin", ["Jaws"]),
        (f"{FILMS} => argmax {{1}} {{3}}", ["Levey"]),
        (f"{FILMS} => min", ["18 December 1946"]),
        (f"{FILMS} => difference", ["5"]),
        (f"{FILMS} => equal", ["no"]),
        (f"{HEIGHTS} => argmax", ["Bel"]),
        (f"{HEIGHTS} => sum", ["60 m"]),
        (f"{HEIGHTS} => mean", ["20 m"]),
        (f"{HEIGHTS} => count", ["3"]),
        (f"({HEIGHTS} => argmax) * How high was {{3}} in 1990?", ["18 m"]),
        ("Which dams are there? * Which rivers feed {1*}?", ["Tay"]),
        (
            "Which dams are there? * (How high is {1}? + How high was {1} in 1990? => difference)",
            ["1 m", "12 m", "0 m"],
        ),
        (
            "Which dams are there? * (How high is {1}? + How high was {1} in 1990? => difference) => argmax {1}",
            ["Bel"],
        ),
        ("Who directed Jaws? + Who directed UHF? => union", ["Spielberg", "Levey"]),
        ("Who directed Jaws? + Who directed Jaws? => equal", ["yes"]),
        ("Who directed Jaws? + Who directed Jaws? => except", []),
        ("Which dams are there? + (Which dams are there? * How high is {2}? => argmax) => except", ["Aya", "Cor"]),
    ],
)
async def test_an_operation_is_done_on_the_answers_of_its_parts(toy, plan: str, answers: list[str]) -> None:
    trace = await toy(WORLD).executor().run("Which came first, Jaws or UHF?", plan=plan)
    assert trace.answers == answers and trace.outcome == "answered"


@pytest.mark.parametrize(
    ("plan", "answers"),
    [
        (f"{HEIGHTS} => where > 20 m", ["Bel"]),
        (f"({HEIGHTS} => where > 1 cm) => count", ["3"]),
        (f"({HEIGHTS} => where < 1 cm) => count", ["0"]),
        ("Which dams are there? => where != Bel", ["Aya", "Cor"]),
        (f"{GROWTH} => where > {{3}}", ["Aya", "Bel"]),
        (f"{GROWTH} => where {{1}} <= {{3}}", ["Cor"]),
        (f"({GROWTH} => where < {{2}}) => count", ["2"]),
        (f"({HEIGHTS} + How high is Aya?) => where < {{3}}", ["Cor"]),
        (f"{HEIGHTS} => where = {{1}}", []),
    ],
)
async def test_where_keeps_what_was_asked_about_whose_value_meets_the_condition(toy, plan: str, answers: list[str]):
    trace = await toy(WORLD).executor().run("q", plan=plan)
    assert trace.answers == answers and trace.outcome == "answered"


@pytest.mark.parametrize(("said", "answers"), [("Bel", ["Bel"]), ("30 m high", [])])
async def test_a_condition_that_is_left_to_the_reader_keeps_nothing_new(toy, said: str, answers: list[str]) -> None:
    world = toy(WORLD | {"How high is Cor?": ["rather high"], "How high is Aya?": ["low"], "merge: q": [said]})
    trace = await world.executor().run("q", plan=f"{HEIGHTS} => where > 40 m")
    assert trace.answers == answers and (trace.outcome == "answered") == bool(answers)


@pytest.mark.parametrize("question", ["Wie viele Dämme gibt es?", "有多少个水坝?", "Combien de barrages y a-t-il ?"])
async def test_a_plan_runs_alike_whatever_the_language_of_its_questions(toy, question: str) -> None:
    world = toy({question: ["阿", "贝"], "X 阿?": ["7 m"], "X 贝?": ["9 m"]})
    trace = await world.executor().run(question, plan=f"{question} * X {{1}}? => argmax")
    assert trace.answers == ["贝"] and trace.outcome == "answered"


async def test_words_of_the_question_change_nothing(toy) -> None:
    world = toy(WORLD)
    asked = ["How many films are older, and what do both have in common?", "q"]
    answers = [(await world.executor().run(question, plan=FILMS)).answers for question in asked]
    assert answers == [["18 December 1946", "1951"]] * 2


async def test_what_has_no_common_type_is_judged_by_the_reader_from_the_parts_answers(toy) -> None:
    world: Toy = toy({"A?": ["a long time"], "B?": ["1951"], "merge: q": ["B"]})
    trace = await world.executor().run("q", plan="A? + B? => argmin")
    assert trace.answers == ["B"] and trace.nodes[-1].detail["method"] == "generator"
    [request] = [request for request in world.requests if request.mode == "merge"]
    assert [(step.question, step.answers) for step in request.steps] == [("A?", ("a long time",)), ("B?", ("1951",))]


async def test_what_nobody_decides_is_unanswered_with_the_values(toy) -> None:
    trace = await toy({"A?": ["a long time"], "B?": ["1951"]}).executor().run("q", plan="A? + B? => argmin")
    assert trace.answers == [] and trace.outcome == "unanswered"
    assert trace.reason is not None and "argmin" in trace.reason and "1951" in trace.reason


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("Who directed Jaws? + When was Levey born? => sum", "numbers or quantities of one kind"),
        ("When was Levey born? => difference", "takes two values"),
        ("When was Levey born? + How high is Aya? => max", "one order"),
        ("When was Levey born? + When was Spielberg born? => argmax", "not what it is about"),
        ("Which dams are there? + Who directed UHF? => intersect", "no value is the same in each part"),
        ("Which dams are there? => where > 5", "whether the condition holds is open"),
        ("Which dams are there? + How high is Aya? => judge", "the reader makes no answer of these"),
        ("(Which dams are there? + Who directed UHF? => union) + Who directed UHF? => equal", "is open"),
    ],
)
async def test_the_reason_says_what_an_operation_lacks(toy, plan: str, reason: str) -> None:
    trace = await toy(WORLD).executor().run("q", plan=plan)
    assert trace.answers == [] and trace.outcome == "unanswered" and reason in (trace.reason or "")


async def test_an_operation_with_a_part_that_has_no_answer_is_not_done(toy) -> None:
    trace = await toy({"A?": ["1950"]}).executor().run("q", plan="A? + B? => argmin")
    assert trace.answers == [] and "step 2 has no answer" in (trace.nodes[-1].error or "")


async def test_the_reason_is_that_of_the_step_which_the_others_waited_for(toy) -> None:
    trace = await toy(WORLD).executor().run("q", plan="(Which dams are there? + Who heads Zed?) => count")
    [silent] = [node for node in trace.nodes if node.asked == "Who heads Zed?"]
    causes = {node.cause for node in trace.nodes if node.cause}
    assert causes == {silent.cause, "no-answer-before"} and trace.reason == silent.error


async def test_a_question_that_answers_make_too_long_says_so(toy) -> None:
    world = WORLD | {"Which dams are there?": ["x" * 5_000]}
    plan = f"Which dams are there? * Which rivers {'feed ' * 1_000}{{1*}}?"
    trace = await toy(world).executor().run("q", plan=plan)
    assert trace.outcome == "unanswered" and "leaf_characters" in str(trace.reason)
    assert "leaf_characters" in explain_silence(trace)


async def test_an_operation_over_a_fan_out_that_is_not_whole_is_said_to_be_partial(toy) -> None:
    world = {name: value for name, value in WORLD.items() if name != "How high is Cor?"}
    trace = await toy(world).executor().run("q", plan=f"{HEIGHTS} => argmax")
    assert trace.answers == ["Bel"] and trace.outcome == "partial"


@pytest.mark.parametrize("plan", ["A? * B {3}?", "A? * B {0}?", "A? + B {1}?", "A? => except", "A? => where > {1}"])
async def test_a_plan_with_a_wrong_number_or_operation_is_refused_before_anything_is_asked(toy, plan: str) -> None:
    world = toy(WORLD)
    with pytest.raises(PlanError):
        await world.executor().run("q", plan=plan)
    assert not world.asked


async def test_the_steps_of_a_trace_have_the_numbers_of_the_plan(toy) -> None:
    trace = await toy(WORLD).executor().run("q", plan=f"{FILMS} => argmin {{1}} {{3}}")
    numbered = {node.detail["step"]: node.asked or node.question for node in trace.nodes if "step" in node.detail}
    assert numbered == {
        1: "Who directed Jaws?",
        2: "When was Spielberg born?",
        3: "Who directed UHF?",
        4: "When was Levey born?",
        5: "=> argmin {1} {3}",
    }
    console = Console(width=120, no_color=True, record=True, file=StringIO())
    console.print(tree(trace))
    assert "step 5  => argmin {1} {3} → Spielberg" in console.export_text()


async def test_each_call_of_a_fan_out_has_the_number_of_its_step(toy) -> None:
    plan = "Which dams are there? * (How high is {1}? + How high was {1} in 1990? => difference) => max"
    trace = await toy(WORLD).executor().run("q", plan=plan)
    members = [node for node in trace.nodes if "." in node.id]
    by_step = {step: [node.id for node in members if node.detail["step"] == step] for step in (2, 3, 4)}
    assert [len(ids) for ids in by_step.values()] == [3, 3, 3] and len(members) == 9
    parents = {node.id: node for node in trace.nodes}
    assert all(node.detail["step"] == parents[node.parent].detail["step"] for node in members)
