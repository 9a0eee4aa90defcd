"""The tree of commands: what a group says of itself, and what is said of a command that there is not."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from revelator.cli import COMMANDS, Command, Group, LazyGroup, revelator, run
from revelator.errors import ConfigError

GROUPS = [name for name, entry in COMMANDS.items() if isinstance(entry, Group)]


# a verb in its base form, its object, and a full stop: no question, no "Shows", no "Showing", no "it" of another line
IMPERATIVE = re.compile(r"[A-Z][a-z]*(?<!ing)(?<![^s]s)[:,]? (?!(?:it|them)\b)[^?]+\.")


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_the_help_of_a_group_says_in_an_imperative_sentence_what_each_command_does(group: str) -> None:
    shown = " ".join(CliRunner().invoke(revelator, [*group.split(), "--help"]).output.split())
    entry = COMMANDS.get(group, Group("", "", COMMANDS))
    assert isinstance(entry, Group) and entry.about in shown
    for name, command in entry.commands.items():
        assert f"{name} {command.about}" in shown
        assert IMPERATIVE.fullmatch(command.about), f"{name}: {command.about}"


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_shows_an_example_whose_command_has_its_options(group: str) -> None:
    shown = CliRunner().invoke(revelator, [*group.split(), "--help"], prog_name="revelator").output
    example = shown.rpartition("Example:\n")[2].strip()
    words = shlex.split(example)
    assert words[: len(group.split()) + 1] == ["revelator", *group.split()]
    help_text = CliRunner().invoke(revelator, [*words[1 : len(group.split()) + 2], "--help"]).output
    assert help_text.startswith("Usage:") and all(word in help_text for word in words if word.startswith("--"))


def test_the_help_of_a_group_imports_none_of_its_commands() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from revelator.cli import revelator\n"
        f"for group in {[*GROUPS, '']!r}:\n"
        "    assert CliRunner().invoke(revelator, [*group.split(), '--help']).exit_code == 0\n"
        "stray = {'torch', 'mlflow', 'numpy', 'data_gen', 'training', 'serving', 'evaluation'} & set(sys.modules)\n"
        "sys.exit(str(sorted(stray)) if stray else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("demmo", "revelator demo"),
        ("modle", "revelator model"),
        ("promote", "revelator model promote"),  # a level below
        ("plan chekc", "revelator plan check"),
        ("index serch", "revelator index search"),
        ("model exprot --out x", "revelator model export"),
    ],
)
def test_an_unknown_command_suggests_the_nearest(typed: str, meant: str) -> None:
    done = CliRunner().invoke(revelator, typed.split(), prog_name="revelator")
    assert done.exit_code == 2 and f"Did you mean '{meant}'?" in done.output


@pytest.mark.parametrize(
    ("typed", "shown"), [("xyzzy", "demo, doctor, ask"), ("index delete", "build, update, search")]
)
def test_a_word_that_is_near_no_command_is_answered_with_those_that_there_are(typed: str, shown: str) -> None:
    done = CliRunner().invoke(revelator, typed.split())
    assert done.exit_code == 2 and "Did you mean" not in done.output
    assert f"No such command '{typed.split()[-1]}'. There are: {shown}" in done.output


def test_a_file_that_the_system_refuses_is_named_without_a_traceback(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as end:
        run(lambda: (tmp_path / "file" / "below").open())
    assert end.value.code == ConfigError.exit_status
    assert capsys.readouterr().err == f"error: {tmp_path}/file/below: Not a directory\n"


@click.command()
def wait() -> None:
    """Waits until Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_a_command_with_a_line_and_the_shell_s_status() -> None:
    command = LazyGroup("tests", lazy={"wait": Command("tests.revelator.test_cli:wait", "Wait.")})
    done = CliRunner().invoke(command, ["wait"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "stopped\n")
