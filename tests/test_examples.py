"""The scripts in examples/ and the documents: every command that they show exists, with its options and files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import COMMANDS, Command, list_command_lines, revelator

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.sh"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINES = sorted(list_command_lines(COMMANDS), key=len, reverse=True)  # the longest one that fits is the command
BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(revelator [^`]+)`")


def commands_in(code: str) -> list[str]:
    """What follows `revelator` in each line of a shell's code, comments left out. An address follows a name, as that of
    a server."""
    lines = [line for line in code.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    lines = [re.sub(r"\s#.*", "", line) for line in lines]
    return [match[1] for line in lines for match in re.finditer(r"(?:^|\|\| |\s)revelator ([a-z](?!\w*://).*)", line)]


def assert_exists(command: str) -> None:
    """It is a command of ours, its options stand in its help, and its YAML files in the checkout."""
    line = next((line for line in LINES if f"revelator {command} ".startswith(f"{line} ")), None)
    assert line, f"there is no command revelator {command}"
    shown = CliRunner().invoke(revelator, [*line.split()[1:], "--help"]).output
    for option in re.findall(r"(?<=\s)--[a-z-]+", command):
        assert re.search(rf"{option}\b", shown), f"revelator {command}: {option}"
    for path in re.findall(r"(?<![$\w/{}-])(?:data_gen|training|evaluation)/[\w/-]+\.yaml", command):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_command_of_a_script_exists_with_its_options_and_files(script: Path) -> None:
    commands = commands_in(script.read_text(encoding="utf-8"))
    assert len(commands) >= 5
    for command in commands:
        assert_exists(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_command_that_a_document_shows_exists_with_its_options_and_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for language, block in BLOCKS.findall(text):
        for command in commands_in(block) if language in ("", "sh") else ():
            assert_exists(command)
    for words in INLINE.findall(BLOCKS.sub("", text)):
        command = " ".join(words.removeprefix("revelator ").partition("|")[0].split())  # it may stand on two lines
        if not isinstance(COMMANDS.get(command), (Command, type(None))) or command.startswith("-"):
            continue  # a group, or an option of `revelator` itself
        assert_exists(command)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_a_program_that_bash_can_read(script: Path) -> None:
    assert script.stat().st_mode & 0o100
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
