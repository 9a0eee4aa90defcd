from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.annotate.names import find_shared_names
from data_gen.annotate.validation import check_replay
from data_gen.augment.substitution import load_names, substitute_names
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from revelator.errors import DataError
from revelator.plans import parse, to_letters

QUESTION = AnnotatedQuestion(
    id="1",
    source="s",
    licence="l",
    split="train",
    question="Who founded the company that distributed Tin Comet in Orn?",
    route="complex",
    expression="Who distributed Tin Comet in Orn? * Who founded {company}?",
    steps=(
        AnnotatedStep("Who distributed Tin Comet in Orn?", ("Harrow Pictures",)),
        AnnotatedStep("Who founded Harrow Pictures?", ("Ada",)),
    ),
    answers=("Ada",),
    entities=("Tin Comet",),
)
POOL = st.permutations(["Una Vale", "The Reed", "Kiln 9", "Marn & Co.", "Ost", "Lake Ira"])


def test_names_are_found_whole_and_longest_first() -> None:
    texts = ["Who is the King of Marn?", "When did Ada Quill die?"]
    assert find_shared_names("Did the King of Marn meet Ada Quill?", texts) == ["King of Marn", "Ada Quill"]
    assert find_shared_names("Who met Ada?", ["Who is Adam?"]) == []


@given(POOL, st.integers())
def test_new_names_stand_in_question_plan_and_steps_alike(pool: list[str], seed: int) -> None:
    renamed = substitute_names(QUESTION, pool, random.Random(seed))
    assert renamed is not None
    assert "Tin Comet" not in str(renamed) and "Orn" not in str(renamed)
    assert to_letters(parse(renamed.expression)) == to_letters(parse(QUESTION.expression))
    assert check_replay(renamed) is None
    (new,) = renamed.entities
    assert new in renamed.question and new in renamed.steps[0].question


def test_nothing_shared_gives_no_copy() -> None:
    plain = AnnotatedQuestion("1", "s", "l", "train", "Who is oldest?", "single", "Who is oldest?")
    assert substitute_names(plain, ["A", "B"], random.Random(0)) is None


def test_a_pool_of_names_is_short_free_of_syntax_and_sorted(tmp_path: Path) -> None:
    path = tmp_path / "names.jsonl"
    good = [f"Name {chr(65 + i // 26)}{chr(65 + i % 26)}" for i in range(120)]
    bad = ["a + b", "{x}", "x" * 90, "(group)", '"q"']
    rows = [f'{{"title": "{name}"}}' for name in reversed(good)] + [b for b in bad if not b.startswith("{")]
    path.write_text("\n".join(rows), encoding="utf-8")
    assert load_names(path) == good
    path.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match="only 2 usable names"):
        load_names(path)
