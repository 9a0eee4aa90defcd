"""QDMR: each operator as a question, what is folded, and what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.annotate.inflection import make_plural, to_singular
from data_gen.annotate.qdmr_operations import read_plan_steps
from data_gen.questions import DroppedError
from revelator.plans import bind, check, list_leaves, parse, render
from revelator.plans.steps import UnspelledError, write_plan


def expression(decomposition: str) -> str:
    """The plan in which each step is asked."""
    return render(write_plan(read_plan_steps(decomposition, ["project"] * len(decomposition.split(";")))))


@pytest.mark.parametrize(
    ("operator", "decomposition", "expected"),
    [
        ("select", "return flights", "What are the flights?"),
        ("filter", "return flights ;return #1 from  boston", "What are the flights from boston?"),
        (
            "filter",
            "return towns that have a mill ;return #1 that are on the river Orn",
            "What are the towns that have a mill? * Which of {1*} are on the river Orn?",
        ),
        ("project", "return poland ;return cities of #1", "What are the cities of poland?"),
        (
            "project",
            "return towns in orn ;return who leads #1",
            "What are the towns in orn? * Who leads {1}?",
        ),
        (
            "discard",
            "return towns in orn ;return towns in marn ;return #1 besides #2",
            "(What are the towns in orn? + What are the towns in marn?) * Which of {1*} are other than {2*}?",
        ),
    ],
)
def test_each_operator_asks_in_natural_words(operator: str, decomposition: str, expected: str) -> None:
    assert expression(decomposition) == expected, operator


@pytest.mark.parametrize(
    ("decomposition", "reason"),
    [
        ("return towns of #2 ;return orn", "refers to a later step"),
        ("return the town was burnt ;return towns of #1", "a step that states something"),
        ("return towns in orn ;return number of #1", "no source is asked for"),
        ("return towns ;return population of #1 ;return #1 where #2 is highest", "no source is asked for"),
        ("return towns ;return age of #1 ;return the difference of #2 and 7", "no source is asked for"),
        ("return towns ;return age of #1 ;return second of #2", "no source is asked for"),
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
        "#{a} that are {w}", "{w} of #{a}", "#{a} besides #{b}", "#{a} {w} #{b}", "{w} #{a}", "the {w} {w} for #{a}",
        "number of #{a}",
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
    except UnspelledError as reason:
        assert "too many steps" in str(reason)
        return
    parsed = parse(text)
    assert render(parsed) == text and "#" not in text
    if faults := check(parsed):  # the reader drops what asks for each value and for all of them, as `#1 besides #1`
        assert {fault.code for fault in faults} == {"each-and-all"}
        return
    for leaf, sources in zip(list_leaves(parsed), bind(parsed).sources, strict=True):
        assert set(sources) == set(leaf.placeholders)


@pytest.mark.parametrize(
    ("one", "many"), [("flight", "flights"), ("city", "cities"), ("person", "people"), ("match", "matches")]
)
def test_nouns_have_one_singular_and_one_plural(one: str, many: str) -> None:
    assert (make_plural(one), to_singular(many), to_singular(one)) == (many, one, one)
