"""Folders that are built whole: what is read, what is refused, and what may be replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from revelator.errors import ArtifactError, ConfigError
from revelator.folders import MANIFEST, FolderKind

BOX = FolderKind("a box", "box-1", "make box")
OTHER = FolderKind("a crate", "crate-1", "make crate")


@pytest.fixture
def box(tmp_path: Path) -> Path:
    (tmp_path / "box" / "inner").mkdir(parents=True)
    (tmp_path / "box" / "a.txt").write_text("first")
    (tmp_path / "box" / "inner" / "b.txt").write_text("second")
    BOX.write_manifest(tmp_path / "box", {"colour": "red"})
    return tmp_path / "box"


def test_a_manifest_says_what_it_was_given_and_lists_every_file_but_itself(box: Path) -> None:
    manifest = BOX.read_manifest(box, verify=True)
    assert manifest["colour"] == "red"
    assert manifest["sizes"] == {"a.txt": 5, "inner/b.txt": 6} and manifest["files"].keys() == manifest["sizes"].keys()
    assert BOX.write_manifest(box, {"colour": "red"}) == manifest


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda file: file.write_text("other!"), "has changed"),
        (lambda file: file.write_text("longer than it was"), "has changed"),
        (Path.unlink, "is missing"),
    ],
)
def test_a_damaged_file_is_named(box: Path, damage: Callable[[Path], object], says: str) -> None:
    damage(box / "inner" / "b.txt")
    with pytest.raises(ArtifactError, match=says) as caught:
        BOX.read_manifest(box, verify=True)
    assert caught.value.where == str(box / "inner" / "b.txt") and "make box" in str(caught.value)
    assert BOX.check_place(box), "a damaged box may be built again"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"rows": 3}', '{"format": "box-1"}', '{"format": 1, "files": {}}'])
def test_a_folder_of_something_else_is_neither_read_nor_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ArtifactError, match=r"not a box, or one that was not finished: no manifest\.json"):
        BOX.read_manifest(tmp_path)
    with pytest.raises(ConfigError, match="something stands there that is not a box"):
        BOX.check_place(tmp_path)


def test_a_place_is_free_where_nothing_stands_or_a_folder_of_this_kind(box: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert BOX.check_place(tmp_path / "new") == BOX.check_place(tmp_path / "empty") == {}
    assert BOX.check_place(box) == json.loads((box / MANIFEST).read_text())
    with pytest.raises(ConfigError):
        OTHER.check_place(box)
    with pytest.raises(ConfigError):
        BOX.check_place(box / "a.txt")
