"""What a model has seen is known by its text, whatever its case and punctuation, and survives its file."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import ArtifactError
from revelator.fingerprints import FILE, Fingerprints, hash_question

texts = st.lists(st.text(max_size=30), max_size=20)


@given(texts, texts, st.text(max_size=30))
def test_each_question_and_title_that_went_in_is_found_and_no_other(questions, titles, other):
    seen = Fingerprints.of(questions, titles)
    assert all(seen.has_question(each) for each in questions)
    assert all(seen.has_title(each) for each in titles)
    assert seen.has_question(other) == (hash_question(other) in map(hash_question, questions))


@given(texts, texts)
def test_what_base_or_adapter_has_seen_both_together_have_seen(base, adapter):
    both = Fingerprints.of(base) | Fingerprints.of(adapter)
    assert both.questions.tolist() == Fingerprints.of([*base, *adapter]).questions.tolist()


@given(texts, texts, texts)
def test_a_file_gives_back_what_was_written(tmp_path_factory, questions, titles, unknown):
    folder = tmp_path_factory.mktemp("model")
    written = Fingerprints.of(questions, titles) | Fingerprints(unknown=tuple(unknown))
    written.write(folder)
    found = Fingerprints.read(folder, "the model")
    assert found.questions.tolist() == written.questions.tolist()
    assert found.titles.tolist() == written.titles.tolist()
    assert found.unknown == written.unknown


def test_the_same_questions_in_any_order_give_the_same_bytes(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    Fingerprints.of(["Who built Ost?", "Who sold Ost?"]).write(tmp_path / "a")
    Fingerprints.of(["who SOLD ost", "Who built Ost?", "Who built Ost!"]).write(tmp_path / "b")
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()


def test_a_fingerprint_is_the_beginning_of_the_published_hash():
    digest = hashlib.sha256(b"who built ost 2").hexdigest()
    assert Fingerprints.of(["Who  built Ost, 2?"]).questions.tolist() == [int(digest[:10], 16)]
    assert Fingerprints.of_numbers([int(digest[:10], 16)]).has_question("Who built Ost 2")


def test_a_folder_without_the_file_says_whose_training_is_unknown(tmp_path):
    assert Fingerprints.read(tmp_path, "an adapter of an earlier release").unknown == (
        "an adapter of an earlier release",
    )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"{}"])
def test_a_damaged_file_is_refused_with_its_place(tmp_path: Path, content: bytes):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ArtifactError) as refused:
        Fingerprints.read(tmp_path, "x")
    assert refused.value.where == str(tmp_path / FILE)
