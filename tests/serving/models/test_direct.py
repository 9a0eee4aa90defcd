"""Self-contained questions: what is computed from the question alone, and what is left without an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.models.direct import answer_directly

ANSWERED = [
    ("Subtract 9 from 30.", "21"),
    ("Take 12 away from 20.", "8"),
    ("Add seven to twelve.", "19"),
    ("What is left of 40 if you remove 15?", "25"),
    ("Divide 63 by nine.", "7"),
    ("Is seven odd?", "yes"),
    ("Is 91 divisible by 7?", "yes"),
    ("What comes next: 2, 4, 8, 16?", "32"),
    ("Continue the sequence 30, 26, 22.", "18"),
    ("How many minutes are there in 3 hours?", "180"),
    ("How many metres are in 2.5 km?", "2500"),
    ("Express 3 litres in millilitres.", "3000"),
    ("What is the third letter of 'lantern'?", "N"),
    ("Which letter does harbour end with?", "R"),
    ("How many times does the letter e appear in the word needle?", "3"),
    ("How do you spell lantern backwards?", "nretnal"),
    ('What is the second word of the phrase "red old boat"?', "old"),
    ("Which comes last in alphabetical order: pear, Äpfel or fig?", "pear"),
    ("Which of 40, 9 and 27 is the smallest?", "9"),
    ("Is 12 or 15 greater?", "15"),
    ("Which of these is a bird: robin, trout or maple?", "robin"),
    ("Which one is a colour, silver or blue?", "blue"),
    ("The Blue Mill was built in 1850 while the Red Mill was built in 1790. Which is older?", "the Red Mill"),
    ("Ben is 14 years old and Amy is 11 years old. Who is younger?", "Amy"),
    ("Oak Hill is 300 m high and Elm Hill is 0.4 km high. Which is higher?", "Elm Hill"),
    ("A school opened in 1900 and closed 30 years later. When did the school close?", "1930"),
    ("What year is 25 years before 2000?", "1975"),
    ("Ivo was born in 1900 and died in 1960. How many years did Ivo live?", "60"),
    ("Sam had 40 cards. He lost 6 and then found 2. How many cards does he have left?", "36"),
    ("Mia has 5 coins and Leo has nine coins. How many coins do they have in total?", "14"),
    ("Kim has 6 stamps and Bo gives 4 stamps to Kim. How many stamps does Kim have now?", "10"),
    ("There are 4 boxes with 12 eggs each. How many eggs are there in total?", "48"),
    ("Ida has 3 bags. Each bag holds 8 nuts. How many nuts does Ida have?", "24"),
    ("Tom shares 20 sweets equally among 4 friends. How many sweets does each friend get?", "5"),
]

UNKNOWN = [
    "Is 7.5 even?",
    "What comes next: 1, 4, 9, 16?",
    "How many days are in 3 months?",
    "How many grams are in 3 hours?",
    "What is the tenth letter of cat?",
    "How many letters are in the alphabet?",
    "Which one is a fruit, apple or pear?",
    "Which of these is a zorb: apple or chair?",
    "Who is older, Brad Holm or Tom Lind?",
    "Ben weighs 60 kg and Amy weighs 55 kg. Who is taller?",
    "Ben has 5 goals and Amy has 7 points. Who has more?",
    "Ivo was born in 1900 and married 20 years later. In which year did Ivo die?",
    "Sam has 5 cards and Ann has 3 more. How many cards does Ann have?",
    "Tom has 12 apples and 5 pears. How many pears does he have?",
    "Kim received 6 letters from Bo. How many letters does Kim have?",
    "Kim has 6 stamps and gives 9 to Bo. How many stamps does Kim have left?",
    "There are 4 boxes with 12 eggs each. How many eggs are broken?",
    "Which plane flew more, the Holm F-15 or the Lind P-61?",
    "How many people live in 3 houses?",
]


@pytest.mark.parametrize(("question", "answer"), ANSWERED)
def test_what_the_question_states_is_computed(question: str, answer: str) -> None:
    reading = answer_directly(question)
    assert reading is not None
    assert reading.answers == (answer,)


@pytest.mark.parametrize("question", UNKNOWN)
def test_what_the_question_does_not_settle_is_unknown(question: str) -> None:
    assert answer_directly(question) is None


@given(st.integers(-500, 500), st.integers(-50, 50), st.integers(3, 6))
def test_a_series_of_one_difference_goes_on_by_it(start: int, difference: int, length: int) -> None:
    terms = ", ".join(str(start + i * difference) for i in range(length))
    reading = answer_directly(f"Which number comes next: {terms}?")
    assert reading is not None
    assert reading.answers == (str(start + length * difference),)


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyzäöé", min_size=1, max_size=20))
def test_a_word_spelled_backwards_twice_is_the_word(word: str) -> None:
    once = answer_directly(f"Write '{word}' backwards.")
    assert once is not None
    twice = answer_directly(f"Write '{once.answers[0]}' backwards.")
    assert twice is not None
    assert twice.answers == (word,)
