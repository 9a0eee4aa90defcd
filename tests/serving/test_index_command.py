"""`revelator index`: build, search, info, as a person and as a program call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from revelator.cli import revelator
from revelator.errors import ArtifactError, DataError

ROWS = [
    {"title": "Marlow Vint", "text": "Marlow Vint directed Copper Rain ."},
    {"title": "Ålevik", "text": "Ålevik is a town by the sea ."},
]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(revelator, ["index", *map(str, arguments)])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_build_search_and_info_work_together(tmp_path: Path, corpus: Path) -> None:
    built = call("build", corpus, "--out", tmp_path / "ix", "--detokenize")
    assert built.exit_code == 0
    assert "2 passages" in built.stdout
    found = call("search", tmp_path / "ix", "who directed copper rain?", "-k", 1)
    assert "Marlow Vint directed Copper Rain." in found.stdout
    info = call("info", tmp_path / "ix", "--verify")
    assert "2 passages" in info.stdout
    assert "detokenize True" in info.stdout
    assert "every file is as it was built" in info.stdout


def test_json_is_one_value_on_standard_output(tmp_path: Path, corpus: Path) -> None:
    built = json.loads(call("build", corpus, "--out", tmp_path / "ix", "--json").stdout)
    assert built["count"] == 2
    found = json.loads(call("search", tmp_path / "ix", "alevik", "--json").stdout)
    assert [(p["id"], p["title"]) for p in found] == [("corpus:2", "Ålevik")]
    assert json.loads(call("info", tmp_path / "ix", "--json").stdout)["settings"]["title_weight"] == 2


def test_a_search_that_finds_nothing_says_so(tmp_path: Path, corpus: Path) -> None:
    call("build", corpus, "--out", tmp_path / "ix")
    found = call("search", tmp_path / "ix", "zeppelin")
    assert (found.exit_code, found.stdout) == (0, "no passage shares a word with the query\n")


def test_wrong_usage_exits_with_2_and_refused_content_with_our_errors(tmp_path: Path, corpus: Path) -> None:
    assert call("build", "--out", tmp_path / "ix").exit_code == 2
    assert call("search", tmp_path, "x", "-k", 0).exit_code == 2
    assert isinstance(call("search", tmp_path, "x").exception, ArtifactError)
    corpus.write_text("{}\n")
    assert isinstance(call("build", corpus, "--out", tmp_path / "ix").exception, DataError)
    assert not (tmp_path / "ix").exists()


@pytest.mark.parametrize("command", [(), ("build",), ("search",), ("info",)])
def test_help_shows_examples(command: tuple[str, ...]) -> None:
    assert "Example" in call(*command, "--help").stdout
