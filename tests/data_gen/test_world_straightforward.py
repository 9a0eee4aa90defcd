"""Straightforward questions: the answer follows from the words of the question, recomputed here by other means."""

from __future__ import annotations

import random
import re

import pytest

from data_gen.world.names import Names, load_vocabulary
from data_gen.world.straightforward import draw, words


@pytest.fixture(scope="module")
def drawn() -> list[tuple[str, str]]:
    rng = random.Random(4)
    names = Names(rng, set())
    return [draw(rng, names) for _ in range(4000)]


def matching(drawn: list[tuple[str, str]], pattern: str) -> list[tuple[tuple[str, ...], str]]:
    found = [(m.groups(), answer) for question, answer in drawn if (m := re.fullmatch(pattern, question))]
    assert found, pattern
    return found


NUMBERS = {words(n): n for n in range(1000)} | {str(n): n for n in range(1000)}


@pytest.mark.parametrize(
    ("pattern", "compute"),
    [
        (r"(?:What is|How much is) (.+) plus (.+)\?", lambda a, b: a + b),
        (r"(?:What is|How much is) (.+) minus (.+)\?", lambda a, b: a - b),
        (r"What is (.+) times (.+)\?", lambda a, b: a * b),
        (r"Divide (.+) by (.+)\.", lambda a, b: a / b),
    ],
)
def test_arithmetic_in_figures_and_in_words_comes_out(drawn, pattern, compute) -> None:
    for (a, b), answer in matching(drawn, pattern):
        assert compute(NUMBERS[a], NUMBERS[b]) == float(answer)


def test_numbers_in_words_are_spelled_as_in_print() -> None:
    assert [words(n) for n in (0, 13, 40, 85, 100, 342)] == [
        "zero", "thirteen", "forty", "eighty-five", "one hundred", "three hundred and forty-two",
    ]  # fmt: skip
    assert len({words(n) for n in range(1000)}) == 1000


def test_the_larger_and_the_smaller_number_are_told_apart(drawn) -> None:
    for (word, a, b), answer in matching(drawn, r"Which number is (\w+), (\d+) or (\d+)\?"):
        assert int(answer) == (max if word in ("larger", "greater") else min)(int(a), int(b))


def test_letters_and_words_are_counted(drawn) -> None:
    for (text,), answer in matching(drawn, r'How many letters are in "(.+)"\?'):
        assert int(answer) == sum(1 for _ in text)
    for (text,), answer in matching(drawn, r'How many words are in "(.+)"\?'):
        assert int(answer) == text.count(" ") + 1


def test_a_choice_names_the_one_option_of_its_kind(drawn) -> None:
    things = load_vocabulary()["things"]
    for (kind, listed), answer in matching(drawn, r"Which of these is an? (.+): (.+)\?"):
        assert [option for option in re.split(", | or ", listed) if option in things[kind]] == [answer]


def test_a_person_who_is_older_was_born_earlier(drawn) -> None:
    for (a, ya, b, yb, word), answer in matching(drawn, r"(.+) was born in (\d+) and (.+) in (\d+)\. Who is (\w+)\?"):
        older, younger = (a, b) if int(ya) < int(yb) else (b, a)
        assert answer == (older if word == "older" else younger)


def test_units_are_converted(drawn) -> None:
    factors = {(large, small): factor for large, small, factor in load_vocabulary()["units"]}
    for (n, large, small), answer in matching(drawn, r"Convert (\d+) (\w+) to (\w+)\."):
        assert int(answer) == int(n) * factors[large, small]
