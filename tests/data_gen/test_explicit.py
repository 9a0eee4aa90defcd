"""Gold decompositions as explicit plans: what each operator becomes, and that the plan computes what its steps say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.annotate.explicit import OperationStep, PlanStep, write_explicit_plan
from data_gen.annotate.plan import REFERENCE
from data_gen.annotate.qdmr_operations import read_plan_steps
from data_gen.questions import DroppedError
from revelator.plans import Operation, bind, check, list_steps, parse, render


def read(decomposition: str, operators: str) -> str:
    return render(write_explicit_plan(read_plan_steps(decomposition, operators.split())))


TOWNS = "What are the towns of orn?"


@pytest.mark.parametrize(
    ("operator", "decomposition", "operators", "expected"),
    [
        ("aggregate", "return towns of orn ;return number of #1", "select aggregate", f"{TOWNS} => count"),
        (
            "group",
            "return towns of orn ;return mills of #1 ;return number of #2 for each #1 ;return #1 where #3 is highest",
            "select project group superlative",
            f"{TOWNS} * (What are the mills of {{1}}? => count) => argmax {{1}}",
        ),
        (
            "comparison",
            "return height of orn ;return height of marn ;return which is lowest of #1 ,  #2",
            "select select comparison",
            "What is the height of orn? + What is the height of marn? => argmin",
        ),
        (
            "union",
            "return towns of orn ;return towns of marn ;return #1 ,  #2 ;return mayors of #3",
            "select select union project",
            f"({TOWNS} + What are the towns of marn? => union) * Who are the mayors of {{3}}?",
        ),
        (
            "discard",
            "return towns of orn ;return towns of marn ;return #1 besides #2",
            "select select discard",
            f"{TOWNS} + What are the towns of marn? => except",
        ),
        (
            "arithmetic",
            "return age of orn ;return age of marn ;return the  difference of #1 and #2",
            "select select arithmetic",
            "What is the age of orn? + What is the age of marn? => difference",
        ),
        (
            "boolean",
            "return mayor of orn ;return mayor of marn ;return if  #1 is the  same as #2",
            "select select boolean",
            "Who is the mayor of orn? + Who is the mayor of marn? => equal",
        ),
        (
            "what ends in a judgement",
            "return towns of orn ;return number of #1 ;return if #2 is at least three",
            "select aggregate boolean",
            f"({TOWNS} => count) => judge",
        ),
        (
            "a step that both parts need is written into both",
            "return towns of orn ;return mills of #1 ;return inns of #1 ;return number of #2 ;return number of #3"
            " ;return the difference of #4 and #5",
            "select project project aggregate aggregate arithmetic",
            f"({TOWNS} * What are the mills of {{1}}? => count) + ({TOWNS} * What are the inns of {{4}}? => count)"
            " => difference",
        ),
    ],
)
def test_each_operator_of_qdmr_is_an_operation(
    operator: str, decomposition: str, operators: str, expected: str
) -> None:
    assert read(decomposition, operators) == expected, operator


@pytest.mark.parametrize(
    ("decomposition", "operators", "reason"),
    [
        ("return towns of orn ;return age of #1 ;return #1 sorted by #2", "select project sort", "in order"),
        (
            "return towns of orn ;return age of #1 ;return #1 where #2 is higher than 3 ;return mayors of #3",
            "select project comparative project",
            "passes another",
        ),
        ("return towns of orn ;return age of #3", "select project", "later step"),
        (
            "return towns of orn ;return mills of marn ;return number of #2 for each #1",
            "select select group",
            "does not come from",
        ),
    ],
)
def test_what_no_plan_can_say_is_given_up_with_its_reason(decomposition: str, operators: str, reason: str) -> None:
    with pytest.raises(DroppedError, match=reason):
        read(decomposition, operators)


def test_a_decomposition_that_doubles_with_each_step_is_given_up_at_once() -> None:
    with pytest.raises(DroppedError, match="too many steps"):
        write_explicit_plan([PlanStep("a"), PlanStep("b"), *(OperationStep("union", (k, k + 1)) for k in range(60))])


@st.composite
def decompositions(draw: st.DrawFn) -> list[PlanStep | OperationStep]:
    steps: list[PlanStep | OperationStep] = [PlanStep("step 1")]
    for k in range(1, draw(st.integers(1, 6))):
        used = draw(st.lists(st.integers(0, k - 1), max_size=2, unique=True))
        if used and draw(st.booleans()):
            steps.append(OperationStep(draw(st.sampled_from(["count", "union", "judge"])), tuple(used)))
        else:
            steps.append(PlanStep(f"step {k + 1} " + " ".join(f"#{n + 1}" for n in used)))
    return steps


@settings(max_examples=200)
@given(decompositions())
def test_every_reference_of_a_plan_leads_to_the_step_that_was_meant(steps: list[PlanStep | OperationStep]) -> None:
    try:
        plan = write_explicit_plan(steps)
    except DroppedError:
        return
    assert parse(render(plan)) == plan and check(plan) == ()
    bound, written = bind(plan), list_steps(plan)
    for step, sources in zip(written, bound.sources, strict=True):
        if not isinstance(step, Operation):
            index = int(step.text.split()[1])
            meant = [int(number) for number, _ in REFERENCE.findall(steps[index - 1].text)]  # type: ignore[union-attr]
            said = [steps[n - 1] for n in meant]
            for producer, wanted in zip(sources.values(), said, strict=True):
                found = written[producer]
                if isinstance(wanted, OperationStep):
                    assert isinstance(found, Operation) and found.name == wanted.name
                else:
                    assert not isinstance(found, Operation) and found.text.split()[1] == wanted.text.split()[1]
