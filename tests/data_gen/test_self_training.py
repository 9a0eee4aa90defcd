"""Which of a model's own plans are learnt from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.annotate.validation import find_fault
from data_gen.questions import AnnotatedQuestion
from data_gen.self_training import (
    AgreedPlan,
    AskedLeaf,
    annotate,
    check_support,
    choose_agreed,
    states_answer,
)

QUESTION = AnnotatedQuestion(
    "q", "mine", "CC0-1.0", "", "Where was the director of Lantern Row born?", "single", answers=("Port Velm",)
)
CHAIN = "Who directed Lantern Row? * Where was {director} born?"
OTHER = "Who made Lantern Row? * Where was {maker} born?"
PAIR = "Who directed Lantern Row? + Where is Lantern Row?"


def test_the_majority_decides_by_letters_and_its_most_frequent_text_is_taken() -> None:
    assert choose_agreed(QUESTION, [PAIR, OTHER, CHAIN, CHAIN, PAIR], 0.6, 0.8) == AgreedPlan(CHAIN, 0.6, 5)
    assert choose_agreed(QUESTION, [OTHER, CHAIN, CHAIN, OTHER], 0.6, 0.8) == AgreedPlan(OTHER, 1.0, 4)


def test_the_order_of_independent_parts_is_no_disagreement() -> None:
    one, other = f"{CHAIN} + Where is Lantern Row?", f"Where is Lantern Row? + {CHAIN}"
    assert choose_agreed(QUESTION, [one, other, one], 1.0, 0.8) == AgreedPlan(one, 1.0, 3)


@pytest.mark.parametrize(
    "sample",
    [
        "Who directed Lantern Row? * Where?",  # checks not
        "Who directed (Lantern Row? * Where was {it} born?",  # parses not
        "Who directed The Glass Orchard? * Where was {director} born?",  # another name
        "Where was the director of Lantern Row born?",  # one leaf
        "Who directed Lantern Row? + Who directed Lantern Row?",  # asks twice
    ],
)
def test_what_does_not_hold_counts_against_the_majority(sample: str) -> None:
    assert choose_agreed(QUESTION, [sample] * 3, 0.5, 0.8) == "no sample holds"
    assert choose_agreed(QUESTION, [CHAIN, sample], 0.5, 0.8) == "the samples do not agree"
    assert choose_agreed(QUESTION, [CHAIN, sample, CHAIN], 0.5, 0.8) == AgreedPlan(CHAIN, 2 / 3, 2)


@settings(max_examples=40)
@given(st.lists(st.sampled_from([CHAIN, OTHER, PAIR, "(", "x"]), min_size=1, max_size=9), st.floats(0, 1))
def test_what_is_agreed_is_always_more_than_half_and_at_least_the_least(samples: list[str], least: float) -> None:
    found = choose_agreed(QUESTION, samples, least, 0.8)
    if isinstance(found, AgreedPlan):
        assert found.agreement > 0.5 and found.agreement >= least and found.plan in samples
    else:
        assert max(samples.count(PAIR), samples.count(CHAIN) + samples.count(OTHER)) <= max(
            len(samples) / 2, least * len(samples)
        )


@pytest.mark.parametrize(
    ("text", "answer", "stated"),
    [
        ("He was born in Port Velm.", "Port Velm", True),
        ("He was born in Port Velmora.", "Port Velm", False),
        ("It opened on 12 May 1899.", "May 12, 1899", True),
        ("It opened in May.", "12 May 1899", False),
        ("anything", "", False),
    ],
)
def test_a_passage_states_an_answer_word_by_word(text: str, answer: str, stated: bool) -> None:
    assert states_answer(text, [answer]) is stated


def test_the_leaf_that_answers_must_find_the_known_answer() -> None:
    first, last = AskedLeaf("Who?", ("Ines Calloway",), True), AskedLeaf("Where?", ("Port Velm",), True)
    lost = AskedLeaf("Where?", ("Orland",), False)
    assert check_support(CHAIN, [first, last]) is None
    assert "finds no passage" in str(check_support(CHAIN, [first, lost]))
    assert check_support(PAIR, [first, lost]) is None
    assert check_support(CHAIN, [first, AskedLeaf("Where?", (), True)]) is None
    assert "finds no passage" in str(check_support(CHAIN, []))


def test_steps_are_kept_only_where_they_end_in_the_known_answer() -> None:
    first = AskedLeaf("Who directed Lantern Row?", ("Ines Calloway",), False)
    plan = AgreedPlan(CHAIN, 0.8, 4)
    right = annotate(QUESTION, plan, [first, AskedLeaf("Where was Ines Calloway born?", ("Port Velm",), True)], "abc")
    wrong = annotate(QUESTION, plan, [first, AskedLeaf("Where was Ines Calloway born?", ("Orland",), True)], "abc")
    assert [step.answers for step in right.steps] == [("Ines Calloway",), ("Port Velm",)] and wrong.steps == ()
    assert find_fault(right, 0.8) is find_fault(wrong, 0.8) is None
    assert (right.split, right.teacher, right.agreement) == ("train", "self:abc", {"translate_bnf": 0.8})
