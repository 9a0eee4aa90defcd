"""Which of a model's own plans are learnt from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.annotate.validation import first_fault
from data_gen.questions import AnnotatedQuestion
from data_gen.self_training import Agreed, Asked, agreed, annotate, likeliest, states, support_fault

QUESTION = AnnotatedQuestion(
    "q", "mine", "CC0-1.0", "", "Where was the director of Lantern Row born?", "single", answers=("Port Velm",)
)
CHAIN = "Who directed Lantern Row? * Where was {director} born?"
OTHER = "Who made Lantern Row? * Where was {maker} born?"
PAIR = "Who directed Lantern Row? + Where is Lantern Row?"


def test_the_majority_decides_by_letters_and_its_most_frequent_text_is_taken() -> None:
    assert agreed(QUESTION, [PAIR, OTHER, CHAIN, CHAIN, PAIR], 0.6, 0.8) == Agreed(CHAIN, 0.6, 5)
    assert agreed(QUESTION, [OTHER, CHAIN, CHAIN, OTHER], 0.6, 0.8) == Agreed(OTHER, 1.0, 4)


def test_the_order_of_independent_parts_is_no_disagreement() -> None:
    one, other = f"{CHAIN} + Where is Lantern Row?", f"Where is Lantern Row? + {CHAIN}"
    assert agreed(QUESTION, [one, other, one], 1.0, 0.8) == Agreed(one, 1.0, 3)


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
    assert agreed(QUESTION, [sample] * 3, 0.5, 0.8) == "no sample holds"
    assert agreed(QUESTION, [CHAIN, sample], 0.5, 0.8) == "the samples do not agree"
    assert agreed(QUESTION, [CHAIN, sample, CHAIN], 0.5, 0.8) == Agreed(CHAIN, 2 / 3, 2)


def test_the_likeliest_plan_of_a_known_graph_is_taken() -> None:
    three = f"{CHAIN} * When did {{place}} begin?"
    texts = ["(", three, PAIR, OTHER, CHAIN]
    assert likeliest(QUESTION, texts, "A * B", 0.4, 0.8) == Agreed(OTHER, 0.4, 2)
    assert likeliest(QUESTION, texts, "A * B", 0.5, 0.8) == "the texts do not agree"
    assert likeliest(QUESTION, texts, "A * B * C", 0.0, 0.8) == Agreed(three, 0.2, 1)
    assert likeliest(QUESTION, texts, "(A + B) * C", 0.0, 0.8) == "no text holds as (A + B) * C"
    assert likeliest(QUESTION, [], "A * B", 0.0, 0.8) == "no text holds as A * B"
    later = f"{CHAIN} + Where is Lantern Row?"
    assert likeliest(QUESTION, [later], "A + B * C", 1.0, 0.8) == Agreed(later, 1.0, 1)  # the order of + is free


@settings(max_examples=40)
@given(st.lists(st.sampled_from([CHAIN, OTHER, PAIR, "(", "x"]), min_size=1, max_size=9), st.floats(0, 1))
def test_what_is_agreed_is_always_more_than_half_and_at_least_the_least(samples: list[str], least: float) -> None:
    found = agreed(QUESTION, samples, least, 0.8)
    if isinstance(found, Agreed):
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
    assert states(text, [answer]) is stated


def test_the_leaf_that_answers_must_find_the_known_answer() -> None:
    first, last = Asked("Who?", ("Ines Calloway",), True), Asked("Where?", ("Port Velm",), True)
    lost = Asked("Where?", ("Orland",), False)
    assert support_fault(CHAIN, [first, last]) is None
    assert "finds no passage" in str(support_fault(CHAIN, [first, lost]))
    assert support_fault(PAIR, [first, lost]) is None
    assert support_fault(CHAIN, [first, Asked("Where?", (), True)]) is None
    assert "finds no passage" in str(support_fault(CHAIN, []))


def test_steps_are_kept_only_where_they_end_in_the_known_answer() -> None:
    first = Asked("Who directed Lantern Row?", ("Ines Calloway",), False)
    plan = Agreed(CHAIN, 0.8, 4)
    right = annotate(QUESTION, plan, [first, Asked("Where was Ines Calloway born?", ("Port Velm",), True)], "abc")
    wrong = annotate(QUESTION, plan, [first, Asked("Where was Ines Calloway born?", ("Orland",), True)], "abc")
    assert [step.answer for step in right.steps] == ["Ines Calloway", "Port Velm"] and wrong.steps == ()
    assert first_fault(right, 0.8) is first_fault(wrong, 0.8) is None
    assert (right.split, right.teacher, right.agreement) == ("train", "self:abc", {"translate_bnf": 0.8})
