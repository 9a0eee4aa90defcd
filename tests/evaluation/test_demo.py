"""The demo: its commands, what it does again and what not, and what it does with a running server."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console

from data_gen.questions import AnnotatedQuestion
from evaluation import demo
from evaluation.demo import (
    AnsweredQuestion,
    Step,
    ask_questions,
    format_command,
    list_steps,
    run_steps,
    summarise,
    write_next,
)
from revelator.cli import revelator
from revelator.errors import RevelatorError
from revelator.plans import parse, render, spell_by_numbers
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
    rows = ask_questions({"complex": BIRTHPLACE, "single": EMPTY}, served.url, home, console)
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
    assert (
        f'revelator ask "{BIRTHPLACE.question}" --plan "{render(spell_by_numbers(parse(PLAN)))}" --home {tmp_path}'
        in page
    )
    assert f"mlflow server --backend-store-uri sqlite:///{tmp_path}/mlflow.db" in page


def test_every_command_that_the_demo_types_exists_with_its_options() -> None:
    for step in list_steps(Path("runs/x"), "mini", 2000):
        words = [word for word in step.arguments if not word.startswith("-")]
        depth = 1 if words[0] in ("train", "serve", "ask") else 2
        shown = CliRunner().invoke(revelator, [*words[:depth], "--help"]).output
        assert all(option in shown for option in step.arguments if option.startswith("--")), step.name


def run(home: Path, step: Step) -> str:
    """What is shown while the step runs, as the one step of a demo."""
    shown = io.StringIO()
    run_steps([step], home, Console(file=shown, width=200))
    return shown.getvalue()


@pytest.fixture
def tidy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """A step whose command, one of Python's own, writes a file again, indented."""
    monkeypatch.setattr(demo, "PROGRAM", sys.executable)
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text('{"a": 1}', encoding="utf-8")
    return Step("tidy", "tidy the file", ("-m", "json.tool", str(source), str(target)), target, ("--no-such-option",))


def test_a_step_runs_once_says_its_command_and_runs_again_where_its_result_or_its_command_is_another(
    tidy: Step, tmp_path: Path
) -> None:
    shown = run(tmp_path, tidy)
    assert "1/3  tidy the file" in shown and f"$ revelator -m json.tool {tmp_path}/in.json" in shown
    assert "already done" in run(tmp_path, tidy)
    other = Step("tidy", "", (*tidy.arguments, "--sort-keys"), tidy.makes)
    assert "already done" not in run(tmp_path, other)
    assert tidy.makes is not None
    tidy.makes.unlink()
    assert "already done" not in run(tmp_path, other)


def test_a_failed_step_names_its_command_and_how_to_go_on_and_is_told_to_resume(tidy: Step, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("{", encoding="utf-8")
    with pytest.raises(RevelatorError, match="step 1 failed with exit status 1") as failure:
        run(tmp_path, tidy)
    assert "revelator -m json.tool" in str(failure.value.where)
    assert f"`revelator demo --home {tmp_path}` goes on from this step" in str(failure.value.hint)
    with pytest.raises(RevelatorError, match="exit status 2") as failure:
        run(tmp_path, tidy)
    assert "--no-such-option" in str(failure.value.where)


def test_a_command_is_shown_as_a_person_would_type_it() -> None:
    asked = format_command(("ask", "Who wrote Belt?", "--home", "runs/x"))
    assert asked == "revelator ask 'Who wrote Belt?' --home runs/x"
    shown = format_command(("data", "build"), (("REVELATOR_WORLD", "my world"),))
    assert shown == "REVELATOR_WORLD='my world' revelator data build"


STARTS_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""
STARTS_BOTH = f"""
import os, signal, sys
from evaluation.demo import run_group
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
run_group([sys.executable, "-c", {STARTS_A_CHILD!r}], os.environ)
"""


def test_a_demo_that_is_told_to_stop_leaves_no_process_of_its_commands_behind() -> None:
    started = subprocess.Popen([sys.executable, "-c", STARTS_BOTH], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    grandchild = psutil.Process(int(started.stdout.readline()))
    started.terminate()
    assert started.wait(30) == 143
    gone, alive = psutil.wait_procs([grandchild], timeout=30)
    assert (len(gone), alive) == (1, [])
