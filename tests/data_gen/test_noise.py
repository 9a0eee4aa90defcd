"""Questions typed carelessly: names, plan and answers stay, and the rest is near to what was asked."""

from __future__ import annotations

import difflib
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from data_gen.annotate.names import find_mention, find_planned_names
from data_gen.annotate.wording import WORDS
from data_gen.augment.noise import add_typing_errors, slip
from data_gen.questions import AnnotatedQuestion

QUESTION = AnnotatedQuestion(
    id="q",
    source="s",
    licence="l",
    split="train",
    question="Where was the director of Lantern Row born?",
    route="complex",
    expression="Who directed Lantern Row? * Where was {director} born?",
    answers=("Port Velm",),
)
SEEDS = st.integers(0, 10_000)


@given(SEEDS)
def test_names_and_everything_but_the_question_stay(seed: int) -> None:
    noisy = add_typing_errors(QUESTION, Random(seed))
    assert replace(noisy, question=QUESTION.question) == QUESTION
    assert all(find_mention(name, noisy.question) for name in find_planned_names(QUESTION))
    assert noisy == add_typing_errors(QUESTION, Random(seed))


@given(SEEDS)
def test_what_is_left_without_the_opening_is_at_most_two_slips_away(seed: int) -> None:
    text = add_typing_errors(QUESTION, Random(seed)).question
    opening = max((words for words in WORDS["openings"] if text.lower().startswith(f"{words} ")), key=len, default="")
    rest = text[len(opening) :].strip().lower()
    matcher = difflib.SequenceMatcher(None, rest, QUESTION.question.lower(), autojunk=False)
    assert sum(max(b - a, d - c) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal") <= 5


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=12), SEEDS)
def test_a_slip_keeps_the_first_letter_and_changes_the_length_by_one_at_most(word: str, seed: int) -> None:
    typed = slip(word, Random(seed))
    assert typed[0] == word[0]
    assert abs(len(typed) - len(word)) <= 1
