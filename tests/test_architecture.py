"""The structure that docs/architecture.md promises, read from the code's own imports."""

from __future__ import annotations

import ast
import re
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


def package_of(module: str) -> str:
    """The package that a module belongs to. A module of a top package, as `revelator.errors`, stands for itself."""
    if (ROOT / module.replace(".", "/")).is_dir():
        return module
    package = module.rpartition(".")[0]
    return package if "." in package else module


def package_imports() -> dict[str, set[str]]:
    """Which packages each package imports, inside functions too."""
    found: dict[str, set[str]] = {}
    for top in MAY_IMPORT:
        for path in (ROOT / top).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            imports = found.setdefault(package_of(module), set())
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    imports |= {package_of(alias.name) for alias in node.names if is_ours(alias.name)}
                elif isinstance(node, ast.ImportFrom) and node.level:
                    raise AssertionError(f"{path}: a relative import")
                elif isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
                    names = {f"{node.module}.{alias.name}" for alias in node.names}
                    imports |= {package_of(name if is_module(name) else node.module) for name in names}
    return {package: imports - {package} for package, imports in found.items()}


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in MAY_IMPORT and is_module(module)


def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").is_file()


def find_cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of packages each of which reaches every other."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in graph.get(waiting.pop(), set()) - seen:
                seen.add(target)
                waiting.append(target)
        return seen

    reached = {package: reach(package) for package in graph}
    groups = {frozenset(p for p in graph if p in reached[q] and q in reached[p]) for q in graph}
    return {group for group in groups if len(group) > 1}


def test_imports_run_one_way_inside_packages_too() -> None:
    assert [sorted(group) for group in find_cycles(package_imports())] == []


def test_every_file_and_name_on_the_page_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```\n.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
    defined = {
        getattr(node, "name", None) or node.id
        for package in MAY_IMPORT
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    files = [span for span in spans if "/" in span]
    names = [span for span in spans if re.fullmatch(r"[A-Z]\w*(\.[a-z_]+)?|[a-z_]+", span)]
    assert len(files) > 10
    assert len(names) > 20
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert [name for name in names if not set(name.split(".")) <= defined | set(MAY_IMPORT)] == []


def test_every_function_on_the_page_is_in_the_file_that_it_names() -> None:
    page = " ".join((ROOT / "docs/architecture.md").read_text(encoding="utf-8").split())
    pairs = re.findall(r"`([\w.]+)`(?: and `([\w.]+)`)? \(`([\w/]+\.py)`\)", page)
    assert len(pairs) > 25
    for first, second, file in pairs:
        tree = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        defined = {getattr(node, "name", None) or getattr(node, "id", None) for node in tree}
        assert {*first.split("."), *filter(None, second.split("."))} <= defined, file


def test_the_language_the_tasks_and_an_executor_whose_models_run_elsewhere_import_no_torch() -> None:
    code = (
        "import sys, revelator, revelator.tasks, revelator.trace, revelator.cli, revelator.client; "
        "import serving.service.run; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_mlflow_folder_does_not_shadow_the_library() -> None:
    code = "import mlflow; assert mlflow.__version__"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert not (ROOT / "mlflow" / "__init__.py").exists()


def test_every_command_says_what_it_does_and_shows_an_example() -> None:
    from click.testing import CliRunner

    from revelator.cli import COMMANDS, list_command_lines, revelator

    for line in list_command_lines(COMMANDS):
        result = CliRunner().invoke(revelator, [*line.split()[1:], "--help"])
        assert result.exit_code == 0, line
        assert line in result.output.partition("\n")[2], f"{line} --help shows no example"
