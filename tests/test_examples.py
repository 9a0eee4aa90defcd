"""The scripts in examples/: every command that they type exists, with its options."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_command_of_a_script_exists_with_its_options_and_files(script: Path) -> None:
    lines = script.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    code = [re.sub(r"\s#.*", "", line) for line in lines if not line.lstrip().startswith("#")]
    commands = [match[1] for line in code for match in re.finditer(r"(?:^|\|\| |\s)revelator ([a-z].*)", line)]
    assert len(commands) >= 5
    for command in commands:
        words = command.split()
        depth = 1 if words[0] in ("train", "demo", "ask", "serve", "inspect") else 2
        shown = CliRunner().invoke(revelator, [*words[:depth], "--help"])
        assert shown.exit_code == 0, command
        assert all(word in shown.output for word in words if word.startswith("--")), command
        for path in re.findall(r"(?<![$\w/{}-])[\w/-]+\.yaml", command):
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_a_program_that_bash_can_read(script: Path) -> None:
    assert script.stat().st_mode & 0o100
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
