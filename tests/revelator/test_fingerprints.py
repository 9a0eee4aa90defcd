"""What a model has seen is known by its text, whatever its case and punctuation, and survives its file, which is read
where a manifest lists it."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.artifact import BASE, EMBEDDED_BASE, EMBEDDED_READER
from revelator.errors import ArtifactError
from revelator.fingerprints import FILE, Fingerprints, hash_question
from revelator.folders import FolderKind
from revelator.reading import READER

MODEL = FolderKind("a model", "test-model-1", "revelator train model")
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
    digest = MODEL.write_manifest(folder, {})["files"][FILE]
    found = Fingerprints.read(folder, MODEL)
    assert found.questions.tolist() == written.questions.tolist()
    assert found.titles.tolist() == written.titles.tolist()
    assert found.unknown == written.unknown
    assert found.digests == {folder.name: digest}


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
    assert Fingerprints.read(tmp_path, MODEL).unknown == (tmp_path.name,)
    assert Fingerprints.read(tmp_path, MODEL, "an adapter of an earlier release").unknown == (
        "an adapter of an earlier release",
    )


def leave_without_manifest(folder: Path) -> None:
    pass


def write_an_earlier_manifest(folder: Path) -> None:
    content = (folder / FILE).read_bytes()
    (folder / FILE).unlink()
    MODEL.write_manifest(folder, {})
    (folder / FILE).write_bytes(content)


def write_the_manifest_of_another_kind(folder: Path) -> None:
    FolderKind("another", "test-another-1", "").write_manifest(folder, {})


@pytest.mark.parametrize(
    "record", [leave_without_manifest, write_an_earlier_manifest, write_the_manifest_of_another_kind]
)
def test_a_file_that_no_manifest_of_the_kind_lists_is_not_read(tmp_path: Path, record: Callable[[Path], None]):
    Fingerprints.of(["Who built Ost?"]).write(tmp_path)
    record(tmp_path)
    found = Fingerprints.read(tmp_path, MODEL)
    assert found.unknown == (tmp_path.name,) and not found.has_question("Who built Ost?")
    assert found.digests == {tmp_path.name: ""}


def test_a_file_that_is_not_as_its_manifest_says_is_refused_with_a_hint(tmp_path: Path):
    Fingerprints.of(["Who built Ost?"]).write(tmp_path)
    MODEL.write_manifest(tmp_path, {})
    Fingerprints.of(["Who sold Ost?"]).write(tmp_path)
    with pytest.raises(ArtifactError, match="has changed since it was built") as changed:
        Fingerprints.read(tmp_path, MODEL)
    (tmp_path / FILE).unlink()
    with pytest.raises(ArtifactError, match="is missing") as missing:
        Fingerprints.read(tmp_path, MODEL)
    for refused in (changed, missing):
        assert refused.value.where == str(tmp_path / FILE)
        assert refused.value.hint == "make it with `revelator train model`"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"{}"])
def test_a_file_that_was_damaged_before_it_was_listed_is_refused_with_its_place(tmp_path: Path, content: bytes):
    (tmp_path / FILE).write_bytes(content)
    MODEL.write_manifest(tmp_path, {})
    with pytest.raises(ArtifactError, match="cannot be read") as refused:
        Fingerprints.read(tmp_path, MODEL)
    assert refused.value.where == str(tmp_path / FILE)


def test_the_models_that_ship_list_their_fingerprints():
    for folder, kind in ((EMBEDDED_BASE, BASE), (EMBEDDED_READER, READER)):
        seen = Fingerprints.read(folder, kind)
        assert len(seen.questions) and folder.name not in seen.unknown
