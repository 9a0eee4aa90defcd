"""A configuration file becomes a model, or one error that names field, value and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from revelator.config import REFERENCE, FilePath, Strict, read_config, read_yaml
from revelator.errors import ConfigError


class Part(Strict):
    kind: Literal["a", "b"] = "a"
    path: FilePath = ""


class Whole(Strict):
    name: str
    parts: tuple[Part, ...] = ()
    sizes: dict[str, int] = Field(default_factory=dict)
    limits: dict[str, int | float] = Field(default_factory=dict)
    either: Literal["none"] | Part = "none"
    digest: str = Field(default="", pattern=r"^[0-9a-f]{4}$")
    letter: str = Field(default="", pattern="^(x|y|)$")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "given.yaml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [1]", r"name = \[1\]: a text is needed"),
        ("parts: []", "name: this field is needed"),
        ("{name: x, parts: [{kind: c}]}", "parts.0.kind = 'c': Input should be 'a' or 'b'"),
        ("{name: x, part: 1}", "part = 1: there is no such field"),
        ("{name: x, parts: [3]}", "parts.0 = 3: a mapping is needed"),
        ("", "file = None: a mapping is needed"),
        ("{name: x, sizes: {a: b}}", "sizes.a = 'b': a number is needed"),
        ("{name: x, sizes: {a: 1.5}}", "sizes.a = 1.5: a whole number is needed"),
        ("{name: x, limits: {a: b}}", "limits.a = 'b': a number is needed\n  hint"),
        ("{name: x, either: all}", "either = 'all': Input should be 'none', or a mapping is needed"),
        ("{name: x, either: {kind: c}}", "either.kind = 'c': Input should be 'a' or 'b'"),
        ("{name: x, digest: 0}", "digest = 0: a text is needed"),
        ("{name: x, digest: abc}", r"digest = 'abc': must match the pattern \^\[0-9a-f\]\{4\}\$"),
        ("{name: x, letter: z}", "letter = 'z': must be one of x, y"),
        ("{name: x, parts: [{path: $NOT_SET_ANYWHERE}]}", "environment variable NOT_SET_ANYWHERE is not set"),
        ("{", "not YAML"),
        ("name: " + "[" * 5000, "not YAML"),
        ("name: 2026-99-99", "not YAML"),
    ],
)
def test_what_is_wrong_is_named_with_field_value_and_reason_and_the_reference(text: str, says: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        read_config(file, Whole)
    assert caught.value.where == str(file) and REFERENCE in str(caught.value)
    assert "\n" not in caught.value.message or "not YAML" in says, "one value that is wrong is one line"
    str(caught.value).encode()


def test_a_key_that_stands_twice_is_refused(file: Path) -> None:
    file.write_text("name: a\nsteps: 3\nsteps: 80\n")
    with pytest.raises(ConfigError, match="'steps' stands twice"):
        read_yaml(file)


def test_a_file_that_may_hold_a_key_shows_no_value(file: Path) -> None:
    for text in ("name: [s3cret]", "{name: x, part: s3cret}", "name: *s3cret"):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_config(file, Whole, show_values=False)
        assert "s3cret" not in str(caught.value)


def test_changes_replace_fields(file: Path) -> None:
    file.write_text("name: x")
    assert read_config(file, Whole, {"name": "y"}) == Whole(name="y")


def test_a_path_takes_the_data_folder_from_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("path: ${REVELATOR_DATA}/$NAME.jsonl")
    monkeypatch.setenv("NAME", "rows")
    monkeypatch.delenv("REVELATOR_DATA", raising=False)
    assert read_config(file, Part).path == "../shared/data/rows.jsonl"
    monkeypatch.setenv("REVELATOR_DATA", "/data")
    assert read_config(file, Part).path == "/data/rows.jsonl"


def test_a_file_with_very_many_faults_is_refused_in_one_line(file: Path) -> None:
    file.write_text("name: x\n" + "".join(f"k{number}: 0\n" for number in range(20_000)))
    with pytest.raises(ConfigError, match="20,000 faults, too many to list") as caught:
        read_config(file, Whole)
    assert len(str(caught.value)) < 1_000
