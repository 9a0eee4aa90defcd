"""Advice: a plan that can be run is never refused for what it leaves open, and the spelling that is offered means the
same."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from revelator.cli import revelator
from revelator.plans import Atomic, Dependent, Sequence, bind, check, list_steps, parse
from revelator.plans.bnf import Expression, find_placeholders
from revelator.plans.checking import advise
from revelator.plans.language import BNF

TWO = "(Who directed Jaws? + Who directed Alien?) * Where was {director} born?"
NUMBERED = "(Who directed Jaws? + Who directed Alien?) * Where was {1} born?"


def find_producers(plan: Expression) -> list[list[int | None]]:
    """For each step the producer of each of its placeholders, in the order of the text."""
    sources = bind(plan).sources
    return [
        [found.get(name) for name, _, _ in find_placeholders(getattr(step, "text", ""))]
        for step, found in zip(list_steps(plan), sources, strict=True)
    ]


def test_a_name_over_several_results_is_pointed_at_with_the_numbers_that_say_which():
    [found] = advise(parse(TWO))
    assert found.code == "which-result" and TWO[found.start : found.end] == "{director}"
    assert "2 results" in found.message and "step 1" in found.message
    assert "{1}" in found.hint and NUMBERED in found.hint
    assert check(parse(TWO)) == () and advise(parse(NUMBERED)) == ()


@pytest.mark.parametrize(
    ("text", "open_names"),
    [
        ("Who directed Jaws? * Where was {director} born?", []),
        ("A * B {x} * C {x}", []),
        ("(A * B {x}) * C {y}", []),
        ("(A + B => union) * C {x}", []),
        ("(A + B) * C {1} {2}", []),
        ("(A + B) * C {x} {y}", ["{x}", "{y}"]),
        ("(A + B) * C {x} is {x}?", ["{x}"]),
        ("(A + B) * (C {x} * D {y})", ["{x}"]),
        ("A * (B {x} + C {x}) * D {y}", ["{y}"]),
        ("(A + B) * C {1} {x}", ["{x}"]),
    ],
)
def test_only_names_whose_left_operand_has_several_results_are_open(text: str, open_names: list[str]):
    found = [one for one in advise(parse(text)) if one.code == "which-result"]
    assert [text[one.start : one.end] for one in found] == open_names


def join(items: list[Expression]) -> Expression:
    """The items beside one another; a sequence holds no sequence."""
    flat = [part for item in items for part in (item.items if isinstance(item, Sequence) else (item,))]
    return Sequence(tuple(flat)) if len(flat) > 1 else flat[0]


def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.lists(inner, min_size=2, max_size=3).map(join) | st.builds(Dependent, inner, texts.map(Atomic))


questions = st.sampled_from(["Who directed Jaws?", "Who directed Alien?", "Where was Al born?", "Which films won?"])
texts = st.sampled_from(
    [
        "Where was {director} born?",
        "Is {director} older than {person}?",
        "Which of {films} is by {director}?",
        "How many of {films} and {1*} did {director} make in {city}?",
        "What is {1}, and what is {films}?",
    ]
)
takers: st.SearchStrategy[Expression] = st.recursive(texts.map(Atomic), extend, max_leaves=3)
lefts: st.SearchStrategy[Expression] = st.recursive(questions.map(Atomic), extend, max_leaves=4)
open_plans = st.builds(Dependent, st.lists(lefts, min_size=2, max_size=3).map(join), takers)


@given(open_plans)
def test_the_spelling_that_is_offered_parses_checks_and_binds_to_the_same_steps(plan: Expression):
    assume(check(plan) == ())
    offered = [one.hint.partition("by number the plan is: ")[2] for one in advise(plan) if one.code == "which-result"]
    assert offered and offered[0] and not any(offered[1:])
    numbered = parse(offered[0])
    assert check(numbered) == () and find_producers(numbered) == find_producers(plan)
    assert not [one for one in advise(numbered) if one.code == "which-result"]


def test_the_command_shows_advice_and_both_spellings_and_refuses_nothing():
    checked = CliRunner().invoke(revelator, ["plan", "check", TWO])
    assert checked.exit_code == 0 and checked.stdout.startswith("valid: (A + B) * C\n")
    assert f"\nby name:   {TWO}\nby number: {NUMBERED}\nadvice, which-result: {{director}}" in checked.stdout
    assert BNF.diagnose(TWO)["valid"] and BNF.diagnose(TWO)["advice"][0]["code"] == "which-result"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("When were Jaws and Alien released? => difference", ["one-question"]),
        ("A * (B {1} => difference)", ["one-question"]),
        ("A * B {1*} => difference", ["one-question"]),
        ("A * B {1} => difference", []),
        ("A + B => difference", []),
        ("(A + B => union) => difference", []),
    ],
)
def test_a_difference_within_one_question_that_is_asked_once_is_advised_against(text: str, codes: list[str]):
    assert [one.code for one in advise(parse(text))] == codes and check(parse(text)) == ()
