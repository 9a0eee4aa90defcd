"""Plans as lists of numbered steps: the plan computes what its steps say, and JSON of them is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.errors import ExpressionError
from revelator.plans import Atomic, Operation, bind, check, list_steps, parse, render
from revelator.plans.decoding import make_json_grammar
from revelator.plans.language import BNF
from revelator.plans.steps import OperationStep, PlanStep, UnspelledError, schema, write_plan

BIRTHS = [{"ask": "Who made A?"}, {"ask": "When was {1} born?"}, {"ask": "Who made B?"}, {"ask": "When was {3} born?"}]


@pytest.mark.parametrize(
    ("steps", "plan"),
    [
        ([{"ask": "Who made A?"}], "Who made A?"),
        ([{"ask": "Who made A?"}, {"ask": "Where is {1*}?"}], "Who made A? * Where is {1*}?"),
        (BIRTHS, "Who made A? * When was {1} born? + Who made B? * When was {3} born?"),
        (
            [*BIRTHS, {"operation": "argmin", "of": [2, 4]}],
            "Who made A? * When was {1} born? + Who made B? * When was {3} born? => argmin",
        ),
        (
            [{"ask": "Who made A?"}, {"ask": "Where is {1}?"}, {"ask": "When was {1} born?"}],
            "Who made A? * (Where is {1}? + When was {1} born?)",
        ),
        (
            [{"ask": "Which A?"}, {"ask": "Which B?"}, {"operation": "except", "of": [1, 2]}, {"ask": "Who made {3}?"}],
            "(Which A? + Which B? => except) * Who made {3}?",
        ),
        (
            [
                {"ask": "Which A?"},
                {"ask": "When was {1} made?"},
                {"operation": "where", "of": [2], "sign": ">", "value": 1980},
                {"operation": "count", "of": [3]},
            ],
            "(Which A? * When was {1} made? => where > 1980) => count",
        ),
        (
            [
                {"ask": "Which A?"},
                {"ask": "What did {1} cost?"},
                {"ask": "What did {1} earn?"},
                {"operation": "where", "of": [3], "sign": ">", "value": "{2}"},
            ],
            "Which A? * (What did {1} cost? + What did {1} earn?) => where > {2}",
        ),
        (
            [
                {"ask": "Which A?"},
                {"ask": "How high is {1}?"},
                {"operation": "where", "of": [2], "sign": "!=", "value": "{1}"},
            ],
            "Which A? * How high is {1}? => where != {1}",
        ),
        (
            [
                {"ask": "How high is B?"},
                {"ask": "Which A?"},
                {"operation": "count", "of": [2]},
                {"operation": "where", "of": [3], "sign": "<", "value": "{1}"},
            ],
            "(Which A? => count) + How high is B? => where < {3}",
        ),
    ],
)
def test_a_json_list_of_steps_is_a_plan(steps: list[dict], plan: str) -> None:
    found = BNF.parse(json.dumps(steps))
    assert render(found) == plan and check(found) == () and parse(plan) == found


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([{"ask": "Who made {2}?"}, {"ask": "b"}], "step 1 refers to a later step or to none"),
        ([{"ask": "a"}, {"operation": "total", "of": [1]}], "no operation 'total', but count"),
        ([{"ask": "a"}, {"operation": "count", "of": []}], "this is no step"),
        ([{"ask": "a"}, {"operation": "count", "of": [True]}], "this is no step"),
        ([{"ask": "a"}, {"operation": "count", "of": [3]}], "step 2 refers to a later step or to none"),
        ([{"ask": "a"}, {"ask": "b", "of": [1]}], "this is no step"),
        ([{"ask": " "}], "this is no step"),
        ([{"ask": "a"}, {"operation": "where", "of": [1]}], "this is no step"),
        ([{"ask": "a"}, {"operation": "count", "of": [1], "sign": ">", "value": "5"}], "this is no step"),
        ([{"ask": "a"}, {"operation": "where", "of": [1], "sign": "~", "value": "5"}], "this is no condition"),
        ([{"ask": "a"}, {"operation": "where", "of": [1], "sign": "=", "value": " "}], "this is no condition"),
        ([{"ask": "a"}, {"operation": "where", "of": [1], "sign": [], "value": "5"}], "this is no condition"),
        ([{"ask": "a"}, {"operation": "where", "of": [1], "sign": "=", "value": True}], "this is no condition"),
        ([{"ask": "a"}, {"operation": "where", "of": [1], "sign": "=", "value": 1e999}], "this is no condition"),
        ([{"ask": "a"}, {"operation": "where", "of": [1], "sign": "=", "value": float("nan")}], "this is no condition"),
        ([{"ask": str(n)} for n in range(17)], "too many steps"),
    ],
)
def test_a_list_that_no_plan_says_is_refused_with_the_form(steps: list[dict], says: str) -> None:
    with pytest.raises(ExpressionError, match=says) as refused:
        BNF.parse(json.dumps(steps))
    assert "operation" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "text",
    ['[{"ask": "a?"},]', '[{"ask": "a?"}', '{"ask": "a?"}', '[[{"ask": "a?"}]]', '[{"ask": "a", "ask": "b"}]',
     '[{"ask": "a"}, {"operation": "count", "of": [' + "9" * 5_000 + "]}]", "[" * 100_000 + '{"'],
)  # fmt: skip
def test_a_broken_list_is_no_question(text: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        BNF.parse(text)
    assert refused.value.code == "steps"


@pytest.mark.parametrize("text", ["[Who] made it?", "[1, 2]", "[]", '["a"]', "[" * 100_000, "{director} who?"])
def test_another_text_that_begins_with_a_bracket_is_a_question(text: str) -> None:
    assert render(BNF.parse(text)) == text


@pytest.mark.parametrize("text", ['[{"ask": "a?"}]', '{"ask" what?', '[ {"x'])
def test_a_question_that_begins_like_a_list_is_written_in_quotes(text: str) -> None:
    assert BNF.parse(render(Atomic(text))) == Atomic(text)


def test_a_schema_holds_a_decoder_to_the_list() -> None:
    assert "argmin" in make_json_grammar(schema()).text


def test_a_decomposition_that_doubles_with_each_step_is_given_up_at_once() -> None:
    with pytest.raises(UnspelledError, match="too many steps"):
        write_plan([PlanStep("a"), PlanStep("b"), *(OperationStep("union", (k, k + 1)) for k in range(60))])


@st.composite
def decompositions(draw: st.DrawFn) -> list[PlanStep | OperationStep]:
    steps: list[PlanStep | OperationStep] = [PlanStep("step 1")]
    for k in range(1, draw(st.integers(1, 6))):
        used = draw(st.lists(st.integers(0, k - 1), max_size=2, unique=True))
        if used and draw(st.booleans()):
            steps.append(OperationStep(draw(st.sampled_from(["count", "union", "judge"])), tuple(used)))
        else:
            steps.append(PlanStep(f"step {k + 1} " + " ".join(f"{{{n + 1}}}" for n in used)))
    return steps


@settings(max_examples=200)
@given(decompositions())
def test_every_reference_of_a_plan_leads_to_the_step_that_was_meant(steps: list[PlanStep | OperationStep]) -> None:
    try:
        plan = write_plan(steps)
    except UnspelledError:
        return
    assert parse(render(plan)) == plan and check(plan) == ()
    bound, written = bind(plan), list_steps(plan)
    for step, sources in zip(written, bound.sources, strict=True):
        if not isinstance(step, Operation):
            index = int(step.text.split()[1])
            said = [steps[n] for n in steps[index - 1].needs]
            for producer, wanted in zip(sources.values(), said, strict=True):
                found = written[producer]
                if isinstance(wanted, OperationStep):
                    assert isinstance(found, Operation) and found.name == wanted.name
                else:
                    assert not isinstance(found, Operation) and found.text.split()[1] == wanted.text.split()[1]
