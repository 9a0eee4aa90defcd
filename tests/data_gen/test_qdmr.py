"""QDMR: each operator as a question, what is folded, and what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.annotate.plan import plan
from data_gen.annotate.qdmr import read_gold_steps
from data_gen.annotate.wording import to_plural, to_singular
from data_gen.questions import DroppedError
from revelator.plans import bind, check, leaves, parse, render


def expression(decomposition: str, question: str = "Which?") -> str:
    return plan(question, read_gold_steps(decomposition), "seed").expression


@pytest.mark.parametrize(
    ("operator", "decomposition", "expected"),
    [
        ("select", "return flights", "What are the flights?"),
        ("filter", "return flights ;return #1 from  boston", "What are the flights from boston?"),
        (
            "filter",
            "return towns that have a mill ;return #1 that are on the river Orn",
            "What are the towns that have a mill? * Which of {towns} are on the river Orn?",
        ),
        ("project", "return poland ;return cities of #1", "What are the cities of poland?"),
        (
            "project",
            "return towns in orn ;return who leads #1",
            "What are the towns in orn? * Who leads {town}?",
        ),
        (
            "aggregate",
            "return towns in orn ;return number of #1",
            "What are the towns in orn? * How many {towns} are there?",
        ),
        (
            "aggregate",
            "return goals of Vard ;return yards of #1 ;return the longest of #2",
            "What are the goals of Vard? * What are the yards of {goal}? * Which of {yards} is the longest?",
        ),
        (
            "group",
            "return airlines ;return flights of #1 ;return number of #2 for each #1",
            "What are the airlines? * How many flights of {airline} are there?",
        ),
        (
            "superlative",
            "return towns in orn ;return population of #1 ;return #1 where #2 is highest",
            "What are the towns in orn? * What is the population of {town}? "
            "* Which of {towns} has the highest population?",
        ),
        (
            "comparative",
            "return towns in orn ;return population of #1 ;return #1 where #2 is higher than 900",
            "What are the towns in orn? * What is the population of {town}? "
            "* For which of {towns} is the population higher than 900?",
        ),
        (
            "union",
            "return stadiums in orn ;return name of #1 ;return capacity of #1 ;return #2 ,  #3",
            "What are the stadiums in orn? * (What is the name of {stadium}? + What is the capacity of {stadium}?)",
        ),
        (
            "intersection",
            "return films of Una Vard ;return films of Bo Quill ;return #1 in both #1 and #2",
            "(What are the films of Una Vard? + What are the films of Bo Quill?) "
            "* Which of {films} are also among {films_2}?",
        ),
        (
            "discard",
            "return towns in orn ;return towns in marn ;return #1 besides #2",
            "(What are the towns in orn? + What are the towns in marn?) * Which of {towns} are not among {towns_2}?",
        ),
        (
            "sort",
            "return towns in orn ;return age of #1 ;return #1 sorted by #2",
            "What are the towns in orn? * What is the age of {town}? * What is the order of {towns} by the age?",
        ),
        (
            "boolean",
            "return towns in orn ;return number of #1 ;return if #2 is equal to two",
            "What are the towns in orn? * How many {towns} are there? * Is {number} equal to two?",
        ),
        (
            "boolean",
            "return if Orn is a hill ;return if Sedge is a hill ;return if both #1 and #2 are true",
            "Is Orn a hill? + Is Sedge a hill?",
        ),
        (
            "arithmetic",
            "return height of Orn Fell ;return height of Sedge Hill ;return the difference of #1 and #2",
            "(What is the height of Orn Fell? + What is the height of Sedge Hill?) "
            "* What is the difference between {height} and {height_2}?",
        ),
        (
            "comparison",
            "return when was Orn built ;return when was Sedge built ;return which was first of #1 ,  #2",
            "When was Orn built? + When was Sedge built?",
        ),
        (
            "when something happened",
            "return Una took the town ;return the town was burnt ;return when was #2",
            "When was the town burnt?",
        ),
    ],
)
def test_each_operator_asks_in_natural_words(operator: str, decomposition: str, expected: str) -> None:
    assert expression(decomposition) == expected, operator


@pytest.mark.parametrize(
    ("decomposition", "reason"),
    [
        ("return towns of #2 ;return orn", "refers to a later step"),
        ("return a ;return b ;return which is true of #1 , #2 ;return year of #3", "not the last step"),
        ("return the town was burnt ;return number of #1", "a step that states something"),
        ("return orn ;return marn ;return sea ;return #3 that is between both #1 and #2", "is not named"),
        ("return hills ;return how steep are #1 ;return #1 where #2 is highest", "has no name"),
    ],
)
def test_what_cannot_be_said_is_given_up_with_its_reason(decomposition: str, reason: str) -> None:
    with pytest.raises(DroppedError, match=reason):
        expression(decomposition)


WORDS = st.sampled_from(["towns", "flights", "hills", "orn", "marn", "mill", "that", "are", "big", "of", "in", "with"])


@st.composite
def decompositions(draw: st.DrawFn) -> str:
    steps = ["return " + " ".join(draw(st.lists(WORDS, min_size=1, max_size=4)))]
    forms = (
        "#{a} that are {w}", "{w} of #{a}", "number of #{a}", "#{a} where #{b} is highest", "#{a} besides #{b}",
        "if #{a} is {w}", "the difference of #{a} and #{b}", "#{a} in both #{a} and #{b}", "the longest of #{a}",
        "number of #{a} for each #{b}", "#{a} , #{b}", "#{a} where #{b} is at least two",
    )  # fmt: skip
    for k in range(1, draw(st.integers(1, 6))):
        a, b = draw(st.integers(1, k)), draw(st.integers(1, k))
        steps.append("return " + draw(st.sampled_from(forms)).format(a=a, b=b, w=draw(WORDS)))
    return " ;".join(steps)


@settings(max_examples=150)
@given(decompositions())
def test_whatever_is_planned_checks_and_binds_and_leaves_no_mark_behind(decomposition: str) -> None:
    try:
        text = expression(decomposition)
    except DroppedError as reason:
        assert reason.message
        return
    parsed = parse(text)
    assert render(parsed) == text and not check(parsed) and "#" not in text
    for leaf, sources in zip(leaves(parsed), bind(parsed).sources, strict=True):
        assert set(sources) == set(leaf.placeholders)


@pytest.mark.parametrize(
    ("one", "many"), [("flight", "flights"), ("city", "cities"), ("person", "people"), ("match", "matches")]
)
def test_nouns_have_one_singular_and_one_plural(one: str, many: str) -> None:
    assert (to_plural(one), to_singular(many), to_plural(many), to_singular(one)) == (many, one, many, one)
    assert to_plural(f"{one}_2") == f"{many}_2"
