"""`revelator plan make`: questions in, routes and plans out, without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.errors import ConfigError, DataError, Unavailable
from revelator.plans import check, parse
from tests.chat_server import Handler, Server, fails, running
from tests.planner_server import ASKED, PLAN, TREE, Planner


def make(lines: str, home: Path, *options: str, code: int, question: str = "-") -> list[dict]:
    made = CliRunner().invoke(
        revelator,
        ["plan", "make", question, "--home", str(home), "--json", *options],
        input=lines,
        catch_exceptions=False,
    )
    assert made.exit_code == code
    return [json.loads(line) for line in made.stdout.splitlines()]


def test_each_question_gets_its_route_and_a_plan(tmp_path: Path) -> None:
    [one, two] = make("When was the director of UHF born?\nWho directed UHF?\n", tmp_path, code=0)
    assert (one["route"], one["letters"], one["valid"]) == ("complex", "A * B", True)
    assert check(parse(one["plan"])) == ()
    assert sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert (two["route"], two["plan"]) == ("single", "Who directed UHF?")


def test_one_question_is_planned_as_it_is_typed_and_shown_in_words_that_need_no_manual(tmp_path: Path) -> None:
    [typed] = make("", tmp_path, "--model", "base", code=0, question="Who directed UHF?")
    (tmp_path / "questions.txt").write_text("Who directed UHF?\n")
    [read] = make("", tmp_path, "--model", "base", "--file", str(tmp_path / "questions.txt"), code=0)
    assert typed == read
    arguments = ["plan", "make", "What can you do?", "--home", str(tmp_path), "--model", "base"]
    shown = CliRunner().invoke(revelator, arguments).stdout
    assert "without documents" in shown and "straightforward" not in shown


def test_a_plan_of_one_step_asks_the_question_in_its_own_words_whatever_the_model_made_of_them(tmp_path: Path) -> None:
    [row] = make("誰が東京タワーを設計しましたか？\n", tmp_path, "--model", "base", code=0)
    assert (row["plan"], row["letters"]) == ("誰が東京タワーを設計しましたか？", "A")


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


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def test_a_language_model_plans_in_place_of_ours(server: Server, tmp_path: Path) -> None:
    Planner(server).logprobs = True
    at_endpoint = ("--planner", server.url, "--planner-model", "m")
    [row, empty] = make(f"{ASKED}\n\n", tmp_path, *at_endpoint, code=1)
    assert (row["route"], row["plan"], row["letters"], row["valid"]) == ("complex", PLAN, "A * B", True)
    assert row["probabilities"] == {} and row["probability"] is None  # its plan says the route
    assert empty["error"] == "the question is empty"
    [tree] = make(f"{ASKED}\n", tmp_path, *at_endpoint, "--language", "art", code=0)
    assert json.loads(tree["plan"]) == TREE


def test_a_plan_of_a_language_model_that_does_not_check_is_shown_with_its_fault(server: Server, tmp_path: Path) -> None:
    Planner(server, translate_bnf='[{"ask": "Where was {director} born?"}]')
    [row] = make(f"{ASKED}\n", tmp_path, "--planner", server.url, "--planner-model", "m", code=1)
    assert (row["plan"], row["valid"]) == ("Where was {director} born?", False)
    assert "director" in row["diagnostics"][0]["message"]


def test_a_prompt_that_an_endpoint_refuses_is_refused_alone(server: Server, tmp_path: Path) -> None:
    model = Planner(server)
    long = "x " * 50

    def reply(handler: Handler) -> None:
        is_long = long.strip() in handler.body["messages"][-1]["content"]
        (fails(400, "the prompt is too long") if is_long else model.reply)(handler)

    server.replies = [reply]
    rows = make(f"{long}\n{ASKED}\n", tmp_path, "--planner", server.url, "--planner-model", "m", code=1)
    assert "too long" in rows[0]["error"] and rows[1]["plan"] == PLAN


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--planner", "http://127.0.0.1:9/v1"), "--planner-model: an endpoint needs the name of a model"),
        (("--planner-model", "m"), "--planner-model: of which planner"),
        (("--planner", "127.0.0.1:9", "--planner-model", "m"), "not an http or https address"),
        (("--planner", "http://127.0.0.1:9/v1", "--planner-model", "m", "--model", "base"), "in place of a model"),
    ],
)
def test_options_that_name_no_planner_are_refused(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        make(f"{ASKED}\n", tmp_path, *options, code=2)


def test_a_planner_that_is_down_ends_the_command(server: Server, tmp_path: Path) -> None:
    server.replies = [fails(503, "down")]
    with pytest.raises(Unavailable, match="503: down"):
        make(f"{ASKED}\n", tmp_path, "--planner", server.url, "--planner-model", "m", code=1)
