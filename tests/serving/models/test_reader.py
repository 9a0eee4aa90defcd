"""The embedded reader: which answer it takes from a passage, what it computes, and when it says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.tasks import Step
from revelator.trace import Passage
from serving.models.direct import answer_directly
from serving.models.direct.numbers import number
from serving.models.reading.names import candidates
from serving.models.reading.reader import ExtractiveReader
from serving.models.reading.text import SENTENCE_CHARACTERS, sentences, tokenise
from serving.protocols import GenerateRequest

READER = ExtractiveReader()
VINT = Passage(
    "1",
    "Marlow Vint (director)",
    "Marlow Vint (born 12 May 1921) was a Norwegian film director. He was born in Ålevik. He studied at the University"
    " of Brenn. He directed Copper Rain, Low Tide (1966) and The Last Ferry. Vint married Ida Holm in 1950.",
)
RAIN = Passage(
    "2",
    "Copper Rain",
    "Copper Rain is a 1962 drama film written by Tove Lind and directed by Marlow Vint. It runs for 94 minutes."
    " The film grossed $4.5 million. It is set in Port Ness.",
)
TOWN = Passage(
    "3",
    "Ålevik",
    "Ålevik is a town in Norway. It has a population of 4,310 and was founded in 1650. Its mayor is Per Dahl.",
)


def read(question: str, *passages: Passage) -> tuple[str, ...]:
    return READER.answer(GenerateRequest("read", question, passages)).answers


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("When was Marlow Vint born?", "12 May 1921"),
        ("In which year was Marlow Vint born?", "1921"),
        ("Where was Marlow Vint born?", "Ålevik"),
        ("Where did Marlow Vint study?", "University of Brenn"),
        ("Who did Marlow Vint marry?", "Ida Holm"),
        ("Who directed Copper Rain?", "Marlow Vint"),
        ("Who wrote Copper Rain?", "Tove Lind"),
        ("What is the running time of Copper Rain?", "94 minutes"),
        ("How much did Copper Rain gross?", "$4.5 million"),
        ("In which country is Ålevik?", "Norway"),
        ("What is the population of Ålevik?", "4,310"),
        ("When was Ålevik founded?", "1650"),
        ("Who is Ålevik's mayor?", "Per Dahl"),
    ],
)
def test_the_value_of_the_kind_asked_for_is_read(question: str, answer: str) -> None:
    assert read(question, VINT, RAIN, TOWN) == (answer,)


def test_the_title_answers_when_the_passage_speaks_of_it() -> None:
    assert read("Which film was written by Tove Lind?", RAIN) == ("Copper Rain",)


def test_a_plural_question_gets_every_item_of_the_list() -> None:
    assert read("Which films did Marlow Vint direct?", VINT) == ("Copper Rain", "Low Tide", "The Last Ferry")


def test_either_side_of_a_relation_is_read() -> None:
    texts = ("Ida Brandt founded Brenn Mill.", "Brenn Mill was founded by Ida Brandt.", "Its founder is Ida Brandt.")
    for text in texts:
        assert read("Who founded Brenn Mill?", Passage("1", "Brenn Mill", text)) == ("Ida Brandt",)


def test_a_qualifier_tells_passages_of_one_name_apart() -> None:
    passages = [
        Passage("1", "Ferry (song)", "Ferry was released in 1990."),
        Passage("2", "Ferry (film)", "Ferry was released in 1971."),
    ]
    assert read("When was Ferry (film) released?", *passages) == ("1971",)
    assert read("When was Ferry (song) released?", *passages[::-1]) == ("1990",)


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Was Marlow Vint born in Ålevik?", "yes"), ("Was Marlow Vint born in Port Ness?", "no")],
)
def test_a_question_of_fact_is_answered_with_yes_or_no(question: str, answer: str) -> None:
    assert read(question, VINT) == (answer,)


@pytest.mark.parametrize(
    ("question", "passages"),
    [
        ("Who directed Copper Rain?", ()),
        ("What is the capital of Peru?", (VINT,)),
        ("When was Copper Rain released?", (Passage("1", "Copper Rain", "It is loud."),)),
        ("", (VINT,)),
        ("?", (Passage("1", "", ""),)),
    ],
)
def test_what_can_not_be_told_is_no_answer(question: str, passages: tuple[Passage, ...]) -> None:
    assert read(question, *passages) == ()


@given(st.text(max_size=120), st.text(max_size=60), st.text(max_size=300))
def test_any_text_is_read_and_answers_are_never_empty(question: str, title: str, text: str) -> None:
    first = READER.answer(GenerateRequest("read", question, (Passage("1", title, text),)))
    assert all(answer.strip() for answer in first.answers)
    assert first == READER.answer(GenerateRequest("read", question, (Passage("1", title, text),)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("J. R. Holm met Dr. Lind. They left.", ["J. R. Holm met Dr. Lind.", "They left."]),
        ("It costs 3.5 crowns! Why? Nobody knows.", ["It costs 3.5 crowns!", "Why?", "Nobody knows."]),
        ("No. 5 won. No one saw.", ["No. 5 won.", "No one saw."]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(max_size=200))
def test_candidates_are_spans_of_their_sentence(text: str) -> None:
    tokens = tokenise(text)
    assert all(0 <= c.first < c.last <= len(tokens) and c.text.strip() for c in candidates(text, tokens))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 17 plus 25?", "42"),
        ("How many is three times four?", "12"),
        ("What is two hundred and five minus 6.5?", "198.5"),
        ("What is the sum of 1,200 and three?", "1203"),
        ("What is 3 + 4 * 2?", "11"),
        ("What is 7 divided by 2?", "3.5"),
        ("What is 15% of 80?", "12"),
        ("Which is larger, 12 or nine?", "12"),
        ("Which is smaller: 12, nine or 30?", "nine"),
        ("Which is longer, 3 km or 4,000 m?", "4,000 m"),
        ("Which is earlier, 3 May 1990 or 2 June 1989?", "2 June 1989"),
        ("How many letters are in the word lighthouse?", "10"),
        ("How many r's are in strawberry?", "3"),
        ("How many words are in the sentence 'low tide at noon'?", "4"),
    ],
)
def test_what_can_be_computed_is_computed(question: str, answer: str) -> None:
    assert READER.answer(GenerateRequest("direct", question)).answers == (answer,)


@pytest.mark.parametrize(
    "question",
    ["Who wrote Hamlet?", "What is 7 divided by 0?", "What is 17?", "Which is larger, 12 or a house?", "2 ^ 9999", ""],
)
def test_what_can_not_be_computed_is_unknown(question: str) -> None:
    reading = READER.answer(GenerateRequest("direct", question))
    assert (reading.answers, reading.method) == ((), "unknown")


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.sampled_from(["plus", "minus", "times"]))
def test_sums_of_whole_numbers_are_exact(a: int, b: int, word: str) -> None:
    expected = {"plus": a + b, "minus": a - b, "times": a * b}[word]
    reading = answer_directly(f"What is {a} {word} {b}?")
    assert reading is not None
    assert reading.answers == (str(expected),)


@given(st.text(max_size=60))
def test_any_text_may_be_put_to_the_arithmetic(text: str) -> None:
    reading = answer_directly(text)
    assert reading is None or all(reading.answers)
    number(text)


def merged(question: str, *steps: tuple[str, tuple[str, ...]]) -> tuple[str, ...]:
    return READER.answer(GenerateRequest("merge", question, steps=tuple(Step(*s) for s in steps))).answers


def test_a_chain_ends_in_its_last_answer_and_parts_are_joined() -> None:
    chain = ("Who directed Copper Rain?", ("Marlow Vint",)), ("When was Marlow Vint born?", ("1921",))
    assert merged("When was the director of Copper Rain born?", *chain) == ("1921",)
    parts = ("Who directed Copper Rain?", ("Marlow Vint",)), ("Who is Ålevik's mayor?", ("Per Dahl", "Eva Dahl"))
    assert merged("…", *parts) == ("Marlow Vint", "Per Dahl", "Eva Dahl")
    assert merged("…", ("Who?", ())) == ()


@given(st.text("ab. ;", min_size=1, max_size=5_000))
def test_no_sentence_is_longer_than_what_scoring_can_take_and_none_of_its_text_is_lost(text: str):
    found = sentences(text)
    assert all(0 < len(sentence) <= SENTENCE_CHARACTERS for sentence in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_long_list_in_one_sentence_is_read():
    people = "; ".join(f"John Smith {number} was born in Ostrava" for number in range(2_000))
    assert read("Where was John Smith 7 born?", Passage("1", "People", people)) == ("Ostrava",)
