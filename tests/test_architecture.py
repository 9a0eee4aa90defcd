"""The structure that docs/architecture.md promises, read from the code's own imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "revelator": set(),
    "data_gen": {"revelator"},
    "training": {"revelator"},
    "serving": {"revelator"},
    "evaluation": {"revelator", "data_gen", "training", "serving"},
    "model_repo": {"revelator", "serving"},
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_run_one_way(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    allowed = MAY_IMPORT[package] | {package}
    strays = {str(f.relative_to(ROOT)): imported(f) & set(MAY_IMPORT) - allowed for f in files}
    assert {name: stray for name, stray in strays.items() if stray} == {}


def test_the_language_and_the_tasks_import_no_torch() -> None:
    code = (
        "import sys, revelator, revelator.tasks, revelator.trace, revelator.cli, revelator.client; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_mlflow_folder_does_not_shadow_the_library() -> None:
    code = "import mlflow; assert mlflow.__version__"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert not (ROOT / "mlflow" / "__init__.py").exists()


def test_every_command_says_what_it_does_and_shows_an_example() -> None:
    from click.testing import CliRunner

    from revelator.cli import COMMANDS, command_lines, revelator

    for line in command_lines(COMMANDS):
        result = CliRunner().invoke(revelator, [*line.split()[1:], "--help"])
        assert result.exit_code == 0, line
        assert line in result.output.partition("\n")[2], f"{line} --help shows no example"
