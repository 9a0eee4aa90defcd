from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.leakage import (
    SeenQuestions,
    find_leak,
    is_kept_back,
    load_held_out,
    make_question_key,
    make_text_key,
)
from revelator.errors import DataError
from revelator.fingerprints import hash_question, normalise


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  Who founded  [Tin-Comet]?! ", "who founded tin comet"),
        ("Ｗｈｏ？", "who"),
        ("STRASSE — Straße", "strasse strasse"),
        ("ﬁve №5", "five no5"),
        ("under_score", "under score"),
        ("…", ""),
    ],
)
def test_questions_are_compared_by_letters_and_digits_alone(text: str, normal: str) -> None:
    assert normalise(text) == normal


@given(st.text())
def test_a_normalised_text_holds_words_between_single_spaces(text: str) -> None:
    normal = normalise(text)
    assert normal == " ".join(normal.split(" ")).strip()
    assert all(character == " " or character.isalnum() for character in normal)
    assert normalise(unicodedata.normalize("NFKC", text)) == normal


def test_a_held_out_file_is_read_by_hash_two_spaces_and_set_name(tmp_path: Path) -> None:
    path = tmp_path / "held_out.sha256"
    path.write_text(f"{hashlib.sha256(b'who made the plover').hexdigest()}  birds-test\n", encoding="utf-8")
    held_out = load_held_out(path)
    assert find_leak(held_out, "Where?", "WHO made the Plover??") == "birds-test"
    assert find_leak(held_out, "Who made the Plovers?") is None


def test_a_line_that_is_no_hash_is_named(tmp_path: Path) -> None:
    path = tmp_path / "held_out.sha256"
    path.write_text(f"{hash_question('a')}  x\nnothing here\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_held_out(path)
    assert caught.value.where == f"{path}, line 2"


def test_a_question_is_admitted_once_by_id_and_by_text() -> None:
    seen = SeenQuestions()

    def admit(identity: str, text: str) -> str | None:
        return seen.find_repeat(make_text_key(identity), make_question_key(text))

    assert admit("1", "Who made it?") is None
    assert admit("2", "who made IT") == "question seen before"
    assert admit("1", "Who else?") == "id seen before"
    assert admit("2", "Who else?") is None


@given(st.text(max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_what_a_share_keeps_back_a_larger_share_keeps_back_too_in_any_spelling(text: str, one: float, other: float):
    less, more = sorted([one, other])
    assert is_kept_back(text, less) <= is_kept_back(text, more)
    assert is_kept_back(f" {text.upper().lower()}?!", more) == is_kept_back(text.upper().lower(), more)
    assert not is_kept_back(text, 0.0) and is_kept_back(text, 1.0)


def test_the_share_that_is_kept_back_is_about_as_large_as_it_says() -> None:
    kept = sum(is_kept_back(f"Who founded town {number}?", 0.1) for number in range(5_000))
    assert 400 < kept < 600
