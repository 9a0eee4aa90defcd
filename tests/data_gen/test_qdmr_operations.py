"""The operators of QDMR as operations of plans."""

from __future__ import annotations

import pytest

from data_gen.annotate.qdmr_operations import read_plan_steps
from data_gen.questions import DroppedError
from revelator.plans import render
from revelator.plans.steps import UnspelledError, write_plan


def read(decomposition: str, operators: str) -> str:
    return render(write_plan(read_plan_steps(decomposition, operators.split())))


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
            "those whose value meets a condition",
            "return towns of orn ;return age of #1 ;return #1 where #2 is at least three ;return mayors of #3",
            "select project comparative project",
            f"({TOWNS} * What is the age of {{1}}? => where {{1}} >= three) * Who are the mayors of {{3}}?",
        ),
        (
            "those with so many",
            "return towns of orn ;return mills of #1 ;return number of #2 for each #1 ;return #1 where #3 is not 2",
            "select project group comparative",
            f"{TOWNS} * (What are the mills of {{1}}? => count) => where {{1}} != 2",
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
            "return towns of orn ;return age of #1 ;return age of ayr ;return #1 where #2 is higher than #3"
            " ;return mayors of #4",
            "select project project comparative project",
            "passes that of another step",
        ),
        ("return towns of orn ;return if #1 is old ;return mayors of #2", "select boolean project", "has: boolean"),
        ("return towns of orn ;return age of #3", "select project", "later step"),
        (
            "return towns of orn ;return mills of marn ;return number of #2 for each #1",
            "select select group",
            "does not come from",
        ),
    ],
)
def test_what_no_plan_can_say_is_given_up_with_its_reason(decomposition: str, operators: str, reason: str) -> None:
    with pytest.raises((DroppedError, UnspelledError), match=reason):
        read(decomposition, operators)
