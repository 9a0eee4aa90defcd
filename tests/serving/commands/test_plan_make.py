"""`revelator plan make`: questions in, routes and plans out, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.errors import DataError
from revelator.plans import check, parse


@pytest.fixture(autouse=True)
def no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow leaves the address of the last store that a test used in the environment."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def make(lines: str, home: Path, *options: str, code: int) -> list[dict]:
    made = CliRunner().invoke(
        revelator, ["plan", "make", "-", "--home", str(home), "--json", *options], input=lines, catch_exceptions=False
    )
    assert made.exit_code == code
    return [json.loads(line) for line in made.stdout.splitlines()]


def test_each_question_gets_its_route_and_a_plan(tmp_path: Path) -> None:
    [one, two] = make("When was the director of UHF born?\nWho directed UHF?\n", tmp_path, code=0)
    assert (one["route"], one["letters"], one["valid"]) == ("complex", "A * B", True)
    assert check(parse(one["plan"])) == ()
    assert sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert (two["route"], two["plan"]) == ("single", "Who directed UHF?")


def test_a_question_that_cannot_be_read_is_refused_alone_and_keeps_its_place(tmp_path: Path) -> None:
    rows = make(f"{'x ' * 5000}\n\nWho directed UHF?\n", tmp_path, "--model", "base", code=1)
    assert ["tokens" in rows[0]["error"], rows[1]["error"], rows[2]["error"]] == [True, "the question is empty", ""]
    assert rows[2]["plan"] == "Who directed UHF?"


def test_other_languages_are_planned_too(tmp_path: Path) -> None:
    [row] = make("When was the director of UHF born?\n", tmp_path, "--model", "base", "--language", "art", code=0)
    assert json.loads(row["plan"])


def test_nothing_to_plan_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no question"):
        make("", tmp_path, code=2)
