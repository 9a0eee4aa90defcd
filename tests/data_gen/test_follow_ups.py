"""Follow-ups: what a message leaves out is known, and putting it back gives the question."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.augment.follow_ups import PERSON, SEVERAL, THING, find_new_part, list_follow_ups, say_without_name
from data_gen.config import SetConfig
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from data_gen.records import make_examples, make_records
from revelator.tasks import TASKS, Step, StepsInput

NAMES = st.sampled_from(["Ada Quill", "Tin Comet", "The Hollow Bell", "O'Hara", "St. Ives"])
FORMS = st.sampled_from(
    [
        "When was {} born?",
        "Who directed {}?",
        "Who is the spouse of {}?",
        "What is {}'s capital?",
        "the film {}",
        "In {}?",
    ]
)
PRONOUNS = st.sampled_from([*PERSON, *SEVERAL, *THING])
WHO = AnnotatedStep("Who directed UHF?", ("Jay Levey",))
BORN = AnnotatedStep("Where was Jay Levey born?", ("Detroit",))


def make_question(**known: object) -> AnnotatedQuestion:
    given = {"id": "q", "source": "s", "licence": "l", "split": "train", "question": "q?", "route": "single"} | known
    return AnnotatedQuestion(**given)  # type: ignore[arg-type]


@pytest.fixture
def chain() -> AnnotatedQuestion:
    return make_question(
        question="Where was the director of UHF born?",
        route="complex",
        expression="Who directed UHF? * Where was {1} born?",
        steps=(WHO, BORN),
        answers=("Detroit",),
    )


@given(FORMS, NAMES, PRONOUNS, st.randoms(use_true_random=False))
def test_a_message_names_nothing_and_says_all_else(
    form: str, name: str, pronouns: tuple[str, str, str], random: Random
):
    said = say_without_name(form.format(name), name, pronouns, random)
    assert name not in said
    kept = [word for word in form.replace("'s", "").strip("?").split() if "{}" not in word]
    missing = {word.casefold() for word in kept} - {word.strip("?,").casefold() for word in said.split()}
    assert missing <= {"the", "of"}, "but for 'the spouse of', of which 'his spouse' is left"


def test_a_step_is_said_for_the_answer_before_it_and_stays_as_it_is_as_often(chain: AnnotatedQuestion) -> None:
    made = make_examples(chain, "rewrite", 1)
    assert {example.gold for example in made} == {chain.question, BORN.question}
    said = [example for example in made if example.input.question != example.gold]
    assert [example.input.steps for example in said] == [(Step(WHO.question, WHO.answers),)]
    assert "Levey" not in said[0].input.question
    assert {example.input.question for example in made if example not in said} == {chain.question, BORN.question}


def test_what_is_told_of_a_conversation_is_the_one_example() -> None:
    asked = make_question(question=BORN.question, message="And where was he born?", history=(WHO,))
    [example] = make_examples(asked, "rewrite", 1)
    assert (example.input, example.gold) == (
        StepsInput("And where was he born?", (Step(WHO.question, WHO.answers),)),
        BORN.question,
    )
    [row] = make_records(asked, SetConfig.model_construct(seed=1, tasks={}), "q", ["rewrite"])
    assert TASKS["rewrite"].parse(row.completion) == BORN.question
    assert TASKS["rewrite"].read_question(row.prompt) == "And where was he born?"


def test_a_history_is_among_what_a_question_teaches() -> None:
    """So that a figure on it counts as seen."""
    assert WHO.question in make_question(history=(WHO,)).list_taught()


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        ("When was Jaws released?", "When was UHF released?", "UHF"),
        ("When was Jaws released?", "When was Jaws released?", ""),
        ("Who wrote Jaws?", "Who directed Jaws?", ""),
        ("Who?", "When was UHF released?", ""),
    ],
)
def test_a_question_that_differs_by_a_name_is_said_by_it(first: str, second: str, part: str) -> None:
    assert find_new_part(first, second) == part


def test_parts_about_one_thing_are_said_without_it_once_it_was_named() -> None:
    parts = (AnnotatedStep("who wrote Ost?", ("Ada",)), AnnotatedStep("when did Ost appear?", ("1950",)))
    asked = make_question(route="compound", steps=parts, parts=("a", "b"), entities=("Ost",), history=(WHO,))
    told = {key: (message, before, meant) for key, message, before, meant in list_follow_ups(asked, Random(3))}
    message, before, meant = told["1.said"]
    assert "Ost" not in message and meant == "when did Ost appear?" and before == (WHO, parts[0])
    assert told["1.alone"][0] == meant
