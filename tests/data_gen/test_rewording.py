"""A question in other words asks the same: names, plan and steps stay; what no rule knows stays as it is."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.augment.rewording import ORDERS, reword, reword_text
from data_gen.augment.rewording import QUESTIONS as ASKED_WITH
from data_gen.questions import AnnotatedQuestion


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


def forms(question: str, names: list[str]) -> set[str]:
    """Every other way to ask it; whatever opens an order or a question about a question is "…"."""
    drawn = {reword_text(question, names, random.Random(seed)) for seed in range(400)} - {question}
    opened = re.compile(rf"(?:{'|'.join([*ORDERS, *ASKED_WITH])}) (.+)[.?]")
    return {f"… {match[1]}" if (match := opened.fullmatch(text)) else text for text in drawn}


@given(QUESTIONS, st.integers())
def test_only_the_words_of_the_question_change_and_its_names_stay(question: AnnotatedQuestion, seed: int) -> None:
    other = reword(question, random.Random(seed))
    assert replace(other, question=question.question) == question
    name = next(name for name in ("UHF", "Orn Prison", "Ada Quill") if name in question.question)
    assert name in other.question
    assert other == reword(question, random.Random(seed))


@pytest.mark.parametrize(
    ("question", "ways"),
    [
        (
            "Who founded the owner of Orn?",
            {"Who founded Orn's owner?", "… who founded Orn's owner", "… who founded the owner of Orn"},
        ),
        (
            "Who is the wife of Jones?",
            {
                "Who is Jones' wife?",
                "Jones' wife is who?",
                "The wife of Jones is who?",
                "… who Jones' wife is",
                "… who the wife of Jones is",
            },
        ),
        (
            "What is the length of film Orn?",
            {
                "What is the film Orn's length?",
                "The film Orn's length is what?",
                "The length of film Orn is what?",
                "… what the film Orn's length is",
                "… what the length of film Orn is",
            },
        ),
        (
            "What island borders Orn's owner?",
            {
                "What island borders the owner of Orn?",
                "Which island borders Orn's owner?",
                "Which island borders the owner of Orn?",
                "… what island borders Orn's owner",
                "… what island borders the owner of Orn",
            },
        ),
        (
            "How big is the town where Orn is located?",
            {
                "How big is the town containing Orn?",
                "How big is the town in which Orn is located?",
                "How big is the town in which Orn lies?",
                "How big is the town that Orn is located in?",
            },
        ),
        (
            "How big is Orn's birthplace?",
            {"How big is the birthplace of Orn?", "How big is the place where Orn was born?"},
        ),
        ("How big is the dog which won Orn?", {"How big is the dog that won Orn?"}),
        ("How big is the dog of the person who made Orn?", {"How big is the dog of the one who made Orn?"}),
        ("What is the city of the maker of Orn called?", {"… what the city of the maker of Orn is called"}),
        ("When did the maker that had become Orn die?", {"… when the maker that had become Orn died"}),
        ("Where did the father of Orn die?", {"… where the father of Orn died"}),
    ],
)
def test_each_rule_asks_in_its_way(question: str, ways: set[str]) -> None:
    assert forms(question, ["Jones" if "Jones" in question else "Orn"]) == ways


@pytest.mark.parametrize(
    ("question", "way"),
    [
        ("Who knows the county of Orn?", None),  # it is called Orn, and does not belong to it
        ("How big is the town where Orn is located in?", None),
        ("Who is Orn's mother's spouse?", "Orn's mother's spouse is who?"),  # not "the mother of Orn's spouse"
        ("Where did Orn's father die?", None),  # not "the father die of Orn"
        ("What shares a border with Orn?", None),  # not "Which shares"
        ("Who is the star of Orn married to?", None),  # not "The star of Orn married to is who?"
        ("What is the thing that Orn is an instance of?", None),
        ("Where is the dog that is in Orn found?", None),
        ("When was the dog of Orn later named?", None),
        ("When did the work of Orn begin?", None),  # "work" may be the verb
    ],
)
def test_what_would_not_ask_the_same_or_not_be_english_is_left(question: str, way: str | None) -> None:
    plain = {form for form in forms(question, ["Orn"]) if not form.startswith("…")}
    assert plain - {"When did Orn's work begin?"} == ({way} if way else set())


@pytest.mark.parametrize(
    "question",
    [
        "Who is older, Orn or Marn?",  # not "who older, Orn or Marn is"
        "When did the work of the maker of Orn begin?",
        "Where is the dog that is in Orn found?",
        "When was the dog of Orn, later named?",
        "What is the thing that Orn is an instance of?",
    ],
)
def test_what_cannot_be_asked_within_another_question_is_not(question: str) -> None:
    assert not any(form.startswith("…") for form in forms(question, ["Orn"]))


def test_a_way_that_loses_a_name_is_not_taken() -> None:
    assert forms("How old is Orn's wife?", ["Orn"]) == {"How old is the wife of Orn?"}
    assert forms("How old is Orn's wife?", ["Orn", "Orn's wife"]) == set()


def test_a_single_question_is_its_own_plan_and_stays() -> None:
    single = replace(asked("Who is the producer of UHF?", "Who is the producer of UHF?"), route="single")
    assert all(reword(single, random.Random(seed)) == single for seed in range(100))
