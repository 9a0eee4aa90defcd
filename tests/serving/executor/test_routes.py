"""The four routes, the choice among them, and what happens when a model's plan cannot be run."""

import subprocess
import sys
from pathlib import Path

import pytest

import serving.executor
from revelator.errors import ExpressionError, InvalidRequest, PlanError, TaskOutputError, Unavailable
from revelator.limits import LONGEST_MS, Limits
from revelator.plans.art import Art, render
from revelator.plans.operators import Relate
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.protocols import TEXT, Writing


def kinds(trace):
    return [node.kind for node in trace.nodes]


async def test_a_straightforward_question_is_asked_of_the_documents_whatever_the_language_model_knows(toy):
    world = toy({"read: What does A cost?": ["9"], "direct: What does A cost?": ["7"]}, {"route": "straightforward"})
    trace = await world.executor().run("What does A cost?")
    assert kinds(trace) == ["route", "atomic"] and (trace.answers, trace.outcome) == (["9"], "answered")
    assert trace.route == "straightforward" and trace.plan is None and not trace.degraded
    assert [request.mode for request in world.requests] == ["read"]


@pytest.fixture
def knowing(toy):
    """A world whose language model may answer from what it knows."""

    def make(known):
        world = toy(known, {"route": "straightforward"})
        return Executor(world, Sources.of_index(world), world, writing=Writing(own_knowledge=True)), world

    return make


async def test_own_knowledge_answers_a_straightforward_question_without_a_search(knowing):
    executor, world = knowing({"direct: What is 2 + 2?": ["4"]})
    trace = await executor.run("What is 2 + 2?")
    assert kinds(trace) == ["route", "direct"] and trace.answers == ["4"] and world.asked == []
    assert (trace.outcome, trace.reason) == ("partial", "answered without documents")


async def test_what_own_knowledge_cannot_answer_is_looked_up(knowing):
    executor, _ = knowing({"read: Who wrote A?": ["p"]})
    trace = await executor.run("Who wrote A?")
    assert kinds(trace) == ["route", "direct", "atomic"] and trace.answers == ["p"]
    assert trace.degraded and "without documents" in trace.reason


async def test_a_single_question_is_one_step(toy):
    world = toy({"Who wrote A?": ["p"]}, {"route": "single"})
    trace = await world.executor().run("Who wrote A?")
    assert kinds(trace) == ["route", "atomic"] and trace.answers == ["p"] and trace.outcome == "answered"


async def test_a_compound_question_is_split_answered_in_parts_and_listed(toy):
    world = toy(
        {"Who wrote A?": ["p"], "Where is B?": ["Ayr"]},
        {"route": "compound", "decompose": '["Who wrote A?", "Where is B?"]'},
    )
    trace = await world.executor().run("Who wrote A and where is B?")
    assert kinds(trace) == ["route", "decompose", "sequence", "atomic", "atomic"]
    assert trace.answers == ["p", "Ayr"] and trace.plan == "Who wrote A? + Where is B?"


async def test_a_compound_question_that_cannot_be_split_is_asked_as_one(toy):
    world = toy({"Who wrote A?": ["p"]}, {"decompose": "not JSON"})
    trace = await world.executor().run("Who wrote A?", strategy="compound")
    assert trace.answers == ["p"] and trace.degraded and trace.plan_source == "fallback"
    assert trace.nodes[0].status == "failed" and trace.nodes[0].detail["output"] == "not JSON"


async def test_a_complex_question_is_compiled_and_run(toy):
    world = toy(
        {"Who wrote A?": ["Ann"], "When was Ann born?": ["1950"]},
        {"route": "complex", "translate_bnf": "Who wrote A? * When was {writer} born?"},
    )
    trace = await world.executor().run("When was the writer of A born?")
    assert kinds(trace) == ["route", "translate", "dependent", "atomic", "atomic"]
    assert trace.answers == ["1950"] and trace.plan_source == "model" and not trace.degraded
    assert trace.plan == "Who wrote A? * When was {writer} born?"


@pytest.mark.parametrize(
    ("plan", "route"),
    [
        ("Who wrote A?", "single"),
        ("Who wrote A? + Who wrote B?", "compound"),
        ("Who wrote A? * When was {1} born?", "complex"),
        ("Who wrote A? + Who wrote B? => union", "complex"),
        ("A ) B", "complex"),
    ],
)
async def test_where_the_plan_is_the_route_nobody_is_asked_for_another(toy, plan: str, route: str) -> None:
    world = toy({"Who wrote A?": ["p"]}, {"translate_bnf": plan, "refine": "Who wrote A?", "end": "yes"})
    trace = await world.executor(routes_by_plan=True).run("Who wrote A?")
    assert trace.route == route and not [call for call in world.calls if call[0] == "route"]


@pytest.mark.parametrize(
    ("strategy", "likely", "planned"), [("auto", 0.9, True), ("auto", 0.7, False), ("compile", 0.7, True)]
)
async def test_a_plan_that_the_model_is_unsure_of_is_not_run_unless_one_was_asked_for(toy, strategy, likely, planned):
    known = {"Who wrote A?": ["p"], "Where was the writer of A born?": ["q"], "Where was p born?": ["r"]}
    outputs = {"route": "complex", "translate_bnf": "Who wrote A? * Where was {writer} born?"}
    world = toy(known, outputs, written={TEXT: likely})
    trace = await world.executor().run("Where was the writer of A born?", strategy=strategy)
    assert trace.answers == (["r"] if planned else ["q"]) and trace.outcome == "answered" and not trace.degraded
    [node] = [node for node in trace.nodes if node.kind == "translate"]
    assert node.detail.get("text_probability") == likely
    assert ("P = 0.70; the limit plan_floor is 0.86" in node.detail.get("unsure", "")) is not planned
    assert trace.route == (None if strategy == "compile" else "complex" if planned else "single")


QUESTION = "Where was the writer of A born?"


@pytest.mark.parametrize(
    ("how", "answers", "asked"),
    [
        ({"strategy": "auto"}, ["q"], ["Who wrote A?", QUESTION]),
        ({"strategy": "compile"}, [], ["Who wrote A?"]),
        ({"plan": "Who wrote A? * Where was {1} born?"}, [], ["Who wrote A?"]),
    ],
)
async def test_where_the_steps_of_its_own_plan_find_nothing_auto_asks_the_question_as_one(toy, how, answers, asked):
    world = toy({QUESTION: ["q"]}, {"route": "complex", "translate_bnf": "Who wrote A? * Where was {1} born?"})
    trace = await world.executor().run(QUESTION, **how)
    assert (trace.answers, world.asked) == (answers, asked)
    assert trace.outcome == ("partial" if answers else "unanswered")
    assert ("the question was asked as one" in (trace.reason or "")) is bool(answers)


async def test_what_the_steps_of_a_plan_that_was_given_up_found_is_no_evidence(toy):
    plan = "Who wrote A? * Where was {1} born?"
    world = toy({QUESTION: ["q"], "Who wrote A?": ["p"]}, {"route": "complex", "translate_bnf": plan})
    trace = await world.executor().run(QUESTION)
    assert trace.answers == ["q"] and [one.question for one in trace.list_evidence()] == [QUESTION]
    given = await world.executor().run(QUESTION, plan=plan)
    assert [one.question for one in given.list_evidence()] == ["Who wrote A?"]


async def test_a_plan_of_one_step_asks_the_question_in_its_own_words(toy):
    world = toy({"After 1990, who led A?": ["p"]}, {"translate_bnf": "Who led A?"})
    trace = await world.executor().run("After 1990, who led A?", strategy="compile")
    assert (trace.answers, world.asked) == (["p"], ["After 1990, who led A?"])


async def test_the_first_valid_plan_of_several_temperatures_is_taken(toy):
    outputs = ["A ) B", "Who wrote A? * When was it?", "Who wrote A?", "never asked for"]
    world = toy({"Who wrote A?": ["p"]}, {"translate_bnf": outputs})
    trace = await world.executor().run("Who wrote A?", strategy="compile")
    tried = [temperature for task, _, temperature in world.calls if task == "translate_bnf"]
    assert tried == [0.0, 0.5, 0.8] and trace.answers == ["p"] and not trace.degraded
    assert {d["temperature"] for d in trace.diagnostics} == {0.0, 0.5}
    assert all(d["code"] and d["message"] for d in trace.diagnostics)


async def test_without_a_valid_plan_the_question_goes_through_the_loop(toy):
    world = toy(
        {"Who wrote A?": ["Ann"], "When was Ann born?": ["1950"], "merge: q": ["1950"]},
        {"translate_bnf": "A ) B", "refine": ["Who wrote A?", "When was Ann born?"], "end": ["no", "yes"]},
    )
    trace = await world.executor().run("q", strategy="compile")
    assert kinds(trace) == ["translate", "refine", "atomic", "end", "refine", "atomic", "end", "merge"]
    assert trace.degraded and trace.reason and len(trace.diagnostics) == 4
    assert trace.answers == ["1950"] and trace.outcome == "answered" and trace.plan is None
    assert [s.question for s in world.requests[-1].steps] == ["Who wrote A?", "When was Ann born?"]


async def test_a_plan_over_a_limit_is_not_run(toy):
    world = toy({"w": ["p"]}, {"translate_bnf": "a + b + c", "refine": "w", "end": "yes"})
    trace = await world.executor(leaves=2).run("q", strategy="compile")
    assert trace.degraded and {d["code"] for d in trace.diagnostics} == {"limit"} and world.asked == ["w"]


async def test_the_loop_ends_at_its_limit_of_steps(toy):
    world = toy({f"Who is {n}?": ["p"] for n in range(9)}, {"refine": [f"Who is {n}?" for n in range(9)], "end": "no"})
    trace = await world.executor(steps=3).run("q", strategy="iterate")
    assert world.asked == ["Who is 0?", "Who is 1?", "Who is 2?"] and trace.outcome == "answered"


async def test_the_loop_ends_at_a_step_that_nothing_supports(toy):
    world = toy({"Who is 0?": ["p"]}, {"refine": [f"Who is {n}?" for n in range(9)], "end": "no"})
    trace = await world.executor(steps=3).run("q", strategy="iterate")
    assert world.asked == ["Who is 0?", "Who is 1?"]
    assert (trace.outcome, trace.answers, trace.reason) == ("unanswered", [], "no answer was found")


async def test_the_loop_ends_when_a_question_comes_back(toy):
    world = toy({"Who is 0?": ["p"]}, {"refine": "Who is 0?", "end": "no"})
    trace = await world.executor().run("q", strategy="iterate")
    assert world.asked == ["Who is 0?"] and trace.answers == ["p"]


async def test_a_given_plan_is_run_as_it_stands_without_the_router(toy):
    world = toy({"Who wrote A?": ["p"]})
    trace = await world.executor().run("q", plan="  Who wrote A?  ")
    assert trace.plan == "Who wrote A?" and trace.plan_source == "given" and trace.route is None
    assert [task for task, _, _ in world.calls] == ["relevance"]


async def test_a_given_plan_that_cannot_be_run_is_refused_with_its_diagnostics(toy):
    executor = toy().executor(leaves=3, depth=2)
    with pytest.raises(ExpressionError) as syntax:
        await executor.run("q", plan="A ) B")
    assert syntax.value.column == 3
    with pytest.raises(PlanError) as unbound:
        await executor.run("q", plan="When was {writer} born?")
    assert unbound.value.diagnostics[0].code
    with pytest.raises(PlanError) as tree:
        await executor.run("q", plan='{"question": "[7]?", "search": {"name": "x"}}', strategy="atomic")
    assert [fault.code for fault in tree.value.diagnostics] == ["reference"]
    with pytest.raises(PlanError, match="limit leaves is 3"):
        await executor.run("q", plan="a + b + c + d")
    with pytest.raises(PlanError, match="limit depth is 2"):
        await executor.run("q", plan="a * b {x} * c {y}")


async def test_a_question_that_is_empty_or_too_long_is_refused(toy):
    executor = toy().executor(question_characters=10)
    for question in ("", "  \n", "x" * 11):
        with pytest.raises(InvalidRequest):
            await executor.run(question)
    for wrong in ({"strategy": "guess"}, {"deadline_ms": 0}, {"deadline_ms": float("nan")}):
        with pytest.raises(InvalidRequest):
            await executor.run("q", **wrong)


async def test_a_request_lowers_limits_and_never_raises_them():
    limits = Limits().lower({"leaves": 4, "fan_out": 100, "relevance_threshold": 0.9})
    assert (limits.leaves, limits.fan_out, limits.relevance_threshold) == (4, 8, 0.9)
    for wrong in (
        {"leafs": 3},
        {"leaves": 0},
        {"leaves": 2.5},
        {"leaves": "3"},
        {"leaves": True},
        {"kept": float("nan")},
    ):
        with pytest.raises(InvalidRequest):
            Limits().lower(wrong)


def test_a_deployment_may_raise_the_deadline_and_nothing_else():
    slow = Limits.of_deployment({"deadline_ms": 120_000, "leaves": 100})
    assert (slow.deadline_ms, slow.leaves) == (120_000, Limits().leaves)
    assert Limits.of_deployment({"leaves": 4}) == Limits().lower({"leaves": 4})
    assert Limits.of_deployment({"deadline_ms": 1e12}).deadline_ms == LONGEST_MS
    with pytest.raises(InvalidRequest, match="deadline_ms must be a positive number"):
        Limits.of_deployment({"deadline_ms": -1})


async def test_a_revelator_that_is_down_or_breaks_its_promise_is_raised(toy):
    with pytest.raises(TaskOutputError):
        await toy({}, {"route": "sideways"}).executor().run("q")
    with pytest.raises(Unavailable):
        await toy({"q": Unavailable("down")}, {"route": "single"}).executor().run("q")


async def test_relevance_is_judged_in_one_call_and_what_search_and_judge_rank_high_is_read(toy):
    scores = {"title 2:": 0.6, "title 4:": 0.95, "title 7:": 0.95, "title 9:": 0.7, "title": 0.1}
    world = toy({"Who wrote A?": ["p"]}, relevance=scores)
    trace = await world.executor(kept=3).run("Who wrote A?", strategy="single")
    assert world.calls == [("relevance", 10, 0.0)]
    assert [p.title for p in world.requests[0].passages] == ["title 4", "title 2", "title 7"]
    node = trace.nodes[0]
    assert len(node.documents) == 10 and node.documents[1].relevance == 0.6
    assert node.detail["kept"] == ["Who wrote A?#4", "Who wrote A?#2", "Who wrote A?#7"]


async def test_when_no_document_reaches_the_threshold_the_first_above_the_floor_are_read_and_the_node_says_so(toy):
    world = toy({"Who wrote A?": ["p"]}, relevance={"title": 0.1})
    trace = await world.executor().run("Who wrote A?", strategy="single")
    assert [p.title for p in world.requests[0].passages] == [f"title {n}" for n in (1, 2, 3, 4, 5)]
    assert "above the floor were read" in trace.nodes[0].detail["relevance"]


async def test_a_comparison_is_computed_and_names_the_candidate(toy):
    world = toy(
        {
            "Who directed Taxi!?": ["Roy"],
            "When did Roy die?": ["3 May 1950"],
            "Who directed What Price?": ["Cukor"],
            "When did Cukor die?": ["January 24, 1983"],
        }
    )
    plan = "(Who directed Taxi!? * When did {1} die?) + (Who directed What Price?? * When did {3} die?) => argmax"
    world.knowledge = {**world.knowledge, "Who directed What Price??": ["Cukor"]}
    trace = await world.executor().run("Which film has the director who died later, Taxi! or What Price??", plan=plan)
    assert trace.answers == ["What Price?"] and trace.nodes[-1].detail["method"] == "argmax"
    assert all(request.mode == "read" for request in world.requests)


async def test_what_is_to_be_judged_goes_to_the_generator(toy):
    question = "Who fell for a sadder reason, A or B?"
    world = toy({"Why did A fall?": ["rain"], "Why did B fall?": ["war"], f"merge: {question}": ["B"]})
    trace = await world.executor().run(question, plan="Why did A fall? + Why did B fall? => judge")
    assert trace.answers == ["B"] and trace.nodes[-1].detail["method"] == "generator"


async def test_a_fallback_says_what_was_wrong_with_the_last_plan(toy):
    world = toy({"w": ["p"]}, {"translate_bnf": "A ) B", "refine": "w", "end": "yes"})
    trace = await world.executor().run("q", strategy="compile")
    assert trace.degraded and trace.diagnostics[-1]["message"] in trace.reason


async def test_atomic_runs_the_models_tree_or_the_callers_over_the_sources(toy):
    outputs = {"translate_art": render(Art("Who wrote A?", Relate("A", "written by")))}
    world = toy({"Who wrote A?": ["Ann"], "Who wrote B?": ["Bob"]}, outputs)
    trace = await world.executor().run("Who wrote A?", strategy="atomic")
    assert trace.answers == ["Ann"] and trace.plan_language == "art" and trace.outcome == "answered"
    tree = render(Art("Who wrote B?", Relate("B", "written by")))
    trace = await world.executor().run("q", plan=tree, strategy="atomic")
    assert trace.answers == ["Bob"] and trace.plan_source == "given"


async def test_a_tree_of_the_model_that_cannot_be_run_falls_back_and_one_of_the_caller_is_refused(toy):
    outputs = {"translate_art": "{", "translate_bnf": "A ) B", "refine": "Who wrote A?", "end": "yes"}
    world = toy({"Who wrote A?": ["Ann"]}, outputs)
    trace = await world.executor().run("Who is broken?", strategy="atomic")
    assert trace.degraded and "went through the loop" in trace.reason and trace.answers == ["Ann"]
    with pytest.raises(PlanError, match=r"names \[9\]"):
        await world.executor().run("q", plan=render(Art("[9]?", Relate("[9]", "b"))), strategy="atomic")


async def test_a_generator_that_fails_to_judge_is_told_with_its_reason(toy):
    question = "Why did A and B fall?"
    world = toy({"Why did A fall?": ["rain"], "Why did B fall?": ["war"], f"merge: {question}": ValueError("torn")})
    trace = await world.executor().run(question, plan="Why did A fall? + Why did B fall? => judge")
    assert (trace.answers, trace.outcome) == ([], "partial") and trace.nodes[-1].cause == "fault"
    assert "torn" in trace.reason


@pytest.mark.parametrize(
    ("question", "options", "says"),
    [
        ("half \ud800", {}, "character 6 of the question"),
        ("q", {"deadline_ms": "5"}, "positive number of milliseconds"),
    ],
)
async def test_what_cannot_be_asked_is_refused(toy, question, options, says):
    with pytest.raises(InvalidRequest, match=says):
        await toy().executor().run(question, **options)


QUERY = '"rivers" AND NOT "dams"'


async def test_a_logical_query_finds_the_documents_of_one_step(toy):
    world = toy({"Which rivers are free?": ["Vjosa"]})
    trace = await world.executor().run("Which rivers are free?", plan=f" {QUERY} ", strategy="logic")
    assert (trace.answers, trace.outcome, trace.plan, trace.plan_language) == (["Vjosa"], "answered", QUERY, "logic")
    assert world.asked == [QUERY]
    assert trace.nodes[0].documents[0].text == f"text 1 about {QUERY}: Vjosa"


@pytest.mark.parametrize(
    ("plan", "error", "says"),
    [
        ('"rivers" AND', ExpressionError, "."),
        ('"rivers" AND NOT "rivers"', PlanError, "no document can match"),
    ],
)
async def test_a_logical_query_that_cannot_be_run_is_refused(toy, plan, error, says):
    world = toy()
    with pytest.raises(error, match=says):
        await world.executor().run("q", plan=plan, strategy="logic")
    assert world.asked == []


async def test_without_a_query_the_model_writes_one(toy):
    world = toy({"Which rivers are free?": ["Vjosa"]}, {"translate_logic": QUERY})
    trace = await world.executor().run("Which rivers are free?", strategy="logic")
    assert kinds(trace) == ["translate", "atomic"] and not trace.degraded
    assert (trace.plan, trace.plan_source, trace.plan_language) == (QUERY, "model", "logic")
    assert (trace.answers, world.asked) == (["Vjosa"], [QUERY])


async def test_the_first_query_of_several_temperatures_that_can_be_run_is_taken(toy):
    outputs = ['"rivers" AND', '"rivers" AND NOT "rivers"', QUERY, "never asked for"]
    world = toy({"q": ["p"]}, {"translate_logic": outputs})
    trace = await world.executor().run("q", strategy="logic")
    assert [t for task, _, t in world.calls if task == "translate_logic"] == [0.0, 0.5, 0.8]
    assert trace.plan == QUERY and not trace.degraded
    assert [d["code"] for d in trace.diagnostics] == ["no-operand", "contradiction"]


@pytest.mark.parametrize("output", ['"rivers" AND', '"a" AND NOT "a"', '"a" OR NOT "a"'])
async def test_without_a_query_that_can_be_run_the_words_of_the_question_find_the_documents(toy, output):
    world = toy({"q": ["p"]}, {"translate_logic": output})
    trace = await world.executor().run("q", strategy="logic")
    assert kinds(trace) == ["translate", "atomic"] and trace.nodes[0].status == "failed"
    assert (trace.answers, trace.outcome, trace.plan) == (["p"], "answered", None)
    assert trace.plan_language == "logic", "a correction of it is a logical query"
    assert trace.degraded and trace.diagnostics[-1]["message"] in trace.reason and len(trace.diagnostics) == 4
    assert world.asked == ["q"]


async def test_a_compound_question_in_braces_that_cannot_be_split_is_asked_as_it_reads(toy):
    world = toy({"Who wrote x?": ["p"]}, {"route": "compound", "decompose": "no list"})
    trace = await world.executor().run("Who wrote {x}?")
    assert (trace.answers, trace.plan, trace.degraded) == (["p"], "Who wrote x?", True)


def test_the_executor_imports_no_triton():
    folder = Path(serving.executor.__path__[0])
    modules = [f"serving.executor.{path.stem}" for path in folder.glob("*.py")]
    assert len(modules) > 9
    code = f"import sys, {', '.join(modules)}; sys.exit(any('triton' in module for module in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
