"""A chain of real commands: told, reused, resumed, and clear when one fails."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from evaluation import chain
from evaluation.chain import Chain, Step, format_command
from revelator.errors import RevelatorError


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of these tests are Python's own."""
    monkeypatch.setattr(chain, "PROGRAM", sys.executable)


def tidy_step(home: Path, text: str | None = None) -> Step:
    """Writes `text` to a file, and gives a step whose command writes it again, indented."""
    source, target = home / "in.json", home / "tidy" / "out.json"
    target.parent.mkdir(exist_ok=True)
    if text is not None:
        source.write_text(text, encoding="utf-8")
    return Step("tidy", "tidy the file", ("-m", "json.tool", str(source), str(target)), target, (source,))


def chain_on(home: Path) -> tuple[Chain, io.StringIO]:
    told = io.StringIO()
    return Chain(home, 1, "make it", Console(file=told, width=200)), told


def test_a_command_is_shown_as_a_person_would_type_it() -> None:
    assert (
        format_command(("ask", "Who wrote Belt?", "--home", "runs/x"))
        == "revelator ask 'Who wrote Belt?' --home runs/x"
    )
    assert (
        format_command(("data", "build"), (("REVELATOR_WORLD", "my world"),))
        == "REVELATOR_WORLD='my world' revelator data build"
    )


def test_a_step_runs_once_says_its_command_and_is_reused(tmp_path: Path) -> None:
    step = tidy_step(tmp_path, '{"a": 1}')
    first, told = chain_on(tmp_path)
    assert first.run(step)
    assert "1/1  tidy the file" in told.getvalue()
    assert f"$ revelator -m json.tool {tmp_path}/in.json" in told.getvalue()
    second, told = chain_on(tmp_path)
    assert not second.run(step)
    assert "already done" in told.getvalue()


def test_a_step_runs_again_when_its_input_or_its_result_has_changed(tmp_path: Path) -> None:
    step = tidy_step(tmp_path, '{"a": 1}')
    chain_on(tmp_path)[0].run(step)
    assert chain_on(tmp_path)[0].run(tidy_step(tmp_path, '{"a": 2}'))
    assert step.makes is not None
    step.makes.write_text("{}", encoding="utf-8")
    assert chain_on(tmp_path)[0].run(step)
    step.makes.unlink()
    assert chain_on(tmp_path)[0].run(step)
    step = replace(step, digest="another base")
    assert chain_on(tmp_path)[0].run(step)
    assert not chain_on(tmp_path)[0].run(step)


def test_a_failed_step_names_its_command_and_how_to_go_on_and_runs_again(tmp_path: Path) -> None:
    with pytest.raises(RevelatorError, match="step 1 failed with exit status 1") as failure:
        chain_on(tmp_path)[0].run(tidy_step(tmp_path, "{"))
    assert "revelator -m json.tool" in str(failure.value.where)
    assert "`make it` goes on from this step" in str(failure.value.hint)
    assert chain_on(tmp_path)[0].run(tidy_step(tmp_path, "{}"))


def test_a_step_that_was_broken_off_is_told_to_resume(tmp_path: Path) -> None:
    plain = tidy_step(tmp_path, "{")
    step = Step("tidy", "tidy the file", plain.arguments, plain.makes, resume=("--no-such-option",))
    with pytest.raises(RevelatorError, match="exit status 1"):
        chain_on(tmp_path)[0].run(step)
    with pytest.raises(RevelatorError, match="exit status 2") as failure:
        chain_on(tmp_path)[0].run(step)
    assert "--no-such-option" in str(failure.value.where)


STARTS_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""
STARTS_BOTH = f"""
import os, signal, sys
from evaluation.chain import run_group
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
run_group([sys.executable, "-c", {STARTS_A_CHILD!r}], os.environ)
"""


def test_a_chain_that_is_told_to_stop_leaves_no_process_of_its_commands_behind() -> None:
    started = subprocess.Popen([sys.executable, "-c", STARTS_BOTH], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    grandchild = psutil.Process(int(started.stdout.readline()))
    started.terminate()
    assert started.wait(30) == 143
    gone, alive = psutil.wait_procs([grandchild], timeout=30)
    assert (len(gone), alive) == (1, [])
