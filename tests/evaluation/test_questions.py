"""Which questions are chosen: by the hash of their ids and by their kind, never by how they turn out."""

from __future__ import annotations

import pytest

from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from evaluation.demo import choose_one_of_each_kind
from evaluation.harness.formats import PLAN_KINDS, BenchmarkQuestion, name_kind
from revelator.errors import DataError
from revelator.files import sha256_text


def question(
    number: int, route: str, expression: str = "", steps: int = 1, split: str = "test", ending: str = "none"
) -> AnnotatedQuestion:
    asked = tuple(AnnotatedStep(f"Step {i}?", ("Arno",)) for i in range(steps))
    text = f"Question {number}?"
    return AnnotatedQuestion(
        f"q{number}", "world", "CC0-1.0", split, text, route, expression, steps=asked, ending=ending
    )


def one_of_each(number: int, split: str = "test") -> list[AnnotatedQuestion]:
    return [
        question(number, "complex", "When did Belt end? + When did Arno end?", 2, split, "argmin"),
        question(number + 1, "single", "Who wrote Belt?", split=split),
        question(number + 2, "compound", "Who wrote Belt? + Where is Arno?", 2, split),
        question(number + 3, "complex", "Who wrote Belt? * Where was {writer} born?", 2, split),
        question(number + 4, "complex", "(Who wrote Belt? + Who drew Belt?) * Did {writer} know {artist}?", 3, split),
        question(number + 5, "complex", "Which rivers pass Arno? * Where does {river} end?", 4, split),
    ]


def with_kinds(questions: list[AnnotatedQuestion]) -> list[BenchmarkQuestion]:
    return [BenchmarkQuestion(q, name_kind(q)) for q in questions]


def test_each_kind_gives_its_first_question_by_id_hash_of_the_split() -> None:
    questions = [q for start in range(0, 60, 6) for q in one_of_each(start)] + one_of_each(100, "train")
    chosen = choose_one_of_each_kind(with_kinds(questions))
    assert list(chosen) == list(PLAN_KINDS) and len({picked.id for picked in chosen.values()}) == len(PLAN_KINDS)
    assert choose_one_of_each_kind(with_kinds(questions[::-1])) == chosen
    for kind, picked in chosen.items():
        fits = [q for q in questions if q.split == "test" and name_kind(q) == kind]
        assert picked == min(fits, key=lambda q: sha256_text(q.id))


def test_the_kind_is_told_from_expression_steps_and_operation() -> None:
    assert {name_kind(q) for q in one_of_each(0)} == {*PLAN_KINDS}
    assert [name_kind(q) for q in one_of_each(0)[3:]] == ["complex", "parentheses", "fan-out"]
    both = question(9, "complex", "(Which rivers pass Arno? + Who drew Belt?) * Where does {river} end?", 4)
    assert name_kind(both) == "fan-out"


def test_a_kind_without_a_question_is_named() -> None:
    with pytest.raises(DataError, match="no fan-out question in the test split"):
        choose_one_of_each_kind(with_kinds(one_of_each(0)[:-1]))
