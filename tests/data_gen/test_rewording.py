"""A question in other words asks the same: names, plan and steps stay; what no rule knows stays as it is."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.annotated import AnnotatedQuestion
from data_gen.rewording import reworded


def asked(question: str, expression: str) -> AnnotatedQuestion:
    return AnnotatedQuestion("1", "s", "l", "train", question, "complex", expression)


SPOUSE = asked(
    "Who is the spouse of the producer of UHF?", "Who is the producer of UHF? * Who is the spouse of {producer}?"
)
PRISON = asked(
    "When was the county where Orn Prison is located founded?",
    "Where is Orn Prison located? * When was {county} founded?",
)  # fmt: skip
SCHOOL = asked("What city did Ada Quill's teacher live in?", "Who taught Ada Quill? * What city did {teacher} live in?")
QUESTIONS = st.sampled_from([SPOUSE, PRISON, SCHOOL])


def ways(question: AnnotatedQuestion) -> set[str]:
    return {reworded(question, random.Random(seed)).question for seed in range(400)}


@given(QUESTIONS, st.integers())
def test_only_the_words_of_the_question_change_and_its_names_stay(question: AnnotatedQuestion, seed: int) -> None:
    other = reworded(question, random.Random(seed))
    assert replace(other, question=question.question) == question
    name = next(name for name in ("UHF", "Orn Prison", "Ada Quill") if name in question.question)
    assert name in other.question
    assert other == reworded(question, random.Random(seed))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (SPOUSE, "Who is the spouse of UHF's producer?"),
        (SPOUSE, "The spouse of the producer of UHF is who?"),
        (SPOUSE, "Tell me who the spouse of UHF's producer is."),
        (PRISON, "When was the county that Orn Prison is located in founded?"),
        (PRISON, "When was the county containing Orn Prison founded?"),
        (SCHOOL, "Which city did Ada Quill's teacher live in?"),
        (SCHOOL, "Can you tell me what city Ada Quill's teacher lived in?"),
    ],
)
def test_ways_to_ask(question: AnnotatedQuestion, expected: str) -> None:
    assert expected in ways(question)


@pytest.mark.parametrize(
    "question",
    [
        "Why does the county of Orn border it?",  # no possession: the county is called Orn
        "Was Orn there first?",
    ],
)
def test_what_no_rule_knows_stays_as_it_is(question: str) -> None:
    assert ways(asked(question, "Where is Orn? * Who knows {place}?")) == {question}


def test_a_single_question_is_its_own_plan_and_stays() -> None:
    single = replace(asked("Who is the producer of UHF?", "Who is the producer of UHF?"), route="single")
    assert ways(single) == {single.question}
