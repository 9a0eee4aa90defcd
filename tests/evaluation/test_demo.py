"""What the demo does with a running server."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from rich.console import Console

from data_gen.questions import AnnotatedQuestion
from evaluation.chain import Chain
from evaluation.demo import AnsweredQuestion, ask_questions, list_steps, summarise, write_next
from revelator.cli import revelator
from revelator.tasks import TASKS

PLAN = "Who directed Lantern Row? * Where was {director} born?"


def question(name: str, text: str) -> AnnotatedQuestion:
    about = (name, "musique", "CC0-1.0", "test", text, "complex", PLAN)
    return AnnotatedQuestion(*about, answers=("Port Velm",))


BIRTHPLACE = question("q1", "Where was the director of Lantern Row born?")
EMPTY = question("q2", " ")


def asked(served: Any, home: Path) -> tuple[list[AnsweredQuestion], str, Console]:
    told = io.StringIO()
    console = Console(file=told, width=120)
    rows = ask_questions({"complex": BIRTHPLACE, "single": EMPTY}, served.url, Chain(home, 1, "again", console))
    return rows, told.getvalue(), console


def test_each_question_is_shown_with_its_command_its_way_and_its_gold_answer(served: Any, tmp_path: Path) -> None:
    rows, told, _ = asked(served, tmp_path)
    assert rows[0].trace.route in (TASKS["route"].labels or ())
    assert f"$ revelator ask {shlex.quote(BIRTHPLACE.question)} --home {tmp_path}" in told
    assert "route" in told
    assert told.count("gold answer: Port Velm") == 2


def test_a_question_that_the_server_refuses_does_not_end_the_demo(served: Any, tmp_path: Path) -> None:
    rows, told, _ = asked(served, tmp_path)
    assert "error: the question is empty" in told
    assert (rows[1].trace.outcome, rows[1].mark) == ("failed", "[red]not met[/]")


def test_the_demo_ends_with_a_table_and_a_page_of_commands(served: Any, tmp_path: Path) -> None:
    rows, _, console = asked(served, tmp_path)
    console.print(summarise(rows))
    page = write_next(tmp_path, rows).read_text(encoding="utf-8")
    assert f'revelator ask "{BIRTHPLACE.question}" --plan "{PLAN}" --home {tmp_path}' in page
    assert f"mlflow server --backend-store-uri sqlite:///{tmp_path}/mlflow.db" in page


def test_every_command_that_the_demo_types_exists_with_its_options() -> None:
    for step in list_steps(Path("runs/x"), "mini", 2000):
        words = [word for word in step.arguments if not word.startswith("-")]
        depth = 1 if words[0] in ("train", "serve", "ask") else 2
        shown = CliRunner().invoke(revelator, [*words[:depth], "--help"]).output
        assert all(option in shown for option in step.arguments if option.startswith("--")), step.name
