"""What `pip install revelator` brings, and what a command says that needs more.

The environment with the base alone is made once, from this environment's own packages: no network is asked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from revelator.cli import COMMANDS, EXTRAS, RARE_EXTRAS, list_command_lines

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APART = ("adapters", "gpu")  # extras that `all` and requirements.lock leave out


def required(requirements: list[str], extra: str = "") -> set[str]:
    """The names of the installed distributions that requirements bring."""
    found: set[str] = set()
    for requirement in requirements:
        name, extras, marker = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?[^;]*(.*)", requirement).groups()  # type: ignore[union-attr]
        if "extra ==" in marker and not any(f'"{e}"' in marker.replace("'", '"') for e in extra.split(",") if e):
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        if distribution.name not in found:
            found |= {distribution.name} | required(distribution.requires or [], extras or "")
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the base dependencies and this checkout, and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    installed = Path(sysconfig.get_path("purelib"))
    for name in required(PROJECT["dependencies"]):
        for file in {f.parts[0] for f in metadata.files(name) or () if not f.parts[0].startswith("..")}:
            if (installed / file).exists() and not (site / file).exists():
                (site / file).symlink_to(installed / file)
    (site / "checkout.pth").write_text(str(ROOT))
    return python


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "200"}
    command = [str(python), "-m", "revelator", *arguments]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_base_brings_neither_torch_nor_mlflow(base: Path) -> None:
    names = {name.lower() for name in required(PROJECT["dependencies"])}
    assert not names & {"torch", "mlflow", "transformers", "pandas", "pyarrow", "datasets", "starlette", "openai"}
    assert len(names) < 40


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("plan", "check", "Who directed UHF? * When was {director} born?"),
        ("ask", "--help"),
    ],
)
def test_language_and_client_work_with_the_base_alone(base: Path, arguments: tuple[str, ...]) -> None:
    done = run(base, *arguments)
    assert done.returncode == 0, done.stderr


def test_a_question_is_asked_with_the_base_alone(base: Path) -> None:
    done = run(base, "ask", "Who?", "--url", "127.0.0.1:1")
    assert done.returncode == 1 and "127.0.0.1:1" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("data build x.yaml --out y", "data"),
        ("train demo", "train"),
        ("index build x --out y", "serve"),
        ("index search x y", "serve"),
        ("model grade base", "eval"),
    ],
)
def test_a_command_of_an_absent_extra_says_which_one_to_install(base: Path, line: str, extra: str) -> None:
    done = run(base, *line.split())
    assert done.returncode == 2, done.stderr
    assert f"pip install 'revelator[{extra}]'" in done.stderr and "is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_extra_that_is_named_exists_and_all_holds_each_but_those_that_stand_apart() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {*EXTRAS.values(), *RARE_EXTRAS.values()} <= set(extras)
    assert extras["all"] == [f"revelator[{','.join(name for name in extras if name not in ('all', 'dev', *APART))}]"]
    assert {place.partition(".")[0] for place in _places()} <= {"revelator", *EXTRAS}


def _places() -> list[str]:
    def walk(commands: dict) -> list[str]:
        return [
            place
            for entry in commands.values()
            for place in ([entry.place] if hasattr(entry, "place") else walk(entry.commands))
        ]

    assert len(walk(COMMANDS)) == len(list(list_command_lines(COMMANDS)))
    return walk(COMMANDS)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_lock_holds_every_requirement_at_a_version_that_is_allowed(python: str) -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    def applies(requirement: Requirement) -> bool:
        version = {"python_version": python, "python_full_version": f"{python}.0"}
        return not requirement.marker or requirement.marker.evaluate(version)

    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [pin for pin in map(Requirement, filter(lambda line: "==" in line, lines)) if applies(pin)]
    locked = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(locked) == len(pins)
    extras = [extra for name, extra in PROJECT["optional-dependencies"].items() if name not in APART]
    wanted = [*PROJECT["dependencies"], *(requirement for extra in extras for requirement in extra)]
    for requirement in filter(applies, map(Requirement, wanted)):
        if requirement.name not in ("torch", "revelator"):
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


def test_uv_lock_is_of_the_ranges_of_pyproject_and_has_a_hash_of_every_file() -> None:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.utils import canonicalize_name

    ours, others = read_uv_lock()
    ranges = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
    assert {(r["name"], SpecifierSet(r.get("specifier", ""))) for r in ours["metadata"]["requires-dist"]} == {
        (canonicalize_name(r.name), r.specifier) for r in map(Requirement, ranges)
    }, "run `make lock`"
    assert ours["version"] == PROJECT["version"], "run `make lock`"
    files = [file for p in others for file in [*p.get("wheels", ()), *([p["sdist"]] if "sdist" in p else [])]]
    assert len(files) > len(others)
    assert all(re.fullmatch("sha256:[0-9a-f]{64}", file["hash"]) for file in files)


def test_requirements_lock_makefile_and_images_name_the_versions_of_uv_lock() -> None:
    """But for what stands apart."""
    ours, others = read_uv_lock()
    extras = [entries for name, entries in ours["optional-dependencies"].items() if name not in APART]
    installed = list_required([*ours["dependencies"], *(entry for extra in extras for entry in extra)], others)
    pins = {f"{p['name']}=={p['version']}" for p in others if p["name"] in installed}
    assert 20 < len({p["name"] for p in others} - installed) < 50
    apart = {pin for pin in pins if re.match("torch==|triton==|cuda-|nvidia-[^p]", pin)}
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert {line.partition(" ;")[0] for line in lines if not line.startswith("#")} == pins - apart
    for name in ("Makefile", "deploy/Dockerfile", "deploy/gpu.Dockerfile"):
        found = set(re.findall(r"\btorch==[0-9.]+", (ROOT / name).read_text(encoding="utf-8")))
        assert found and found <= apart, name


def read_uv_lock() -> tuple[dict, list[dict]]:
    """The entry of this package, and those of all others."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (ours,) = (p for p in packages if p["name"] == PROJECT["name"])
    return ours, [p for p in packages if p is not ours]


def list_required(entries: list[dict], packages: list[dict]) -> set[str]:
    """The names of the packages that entries of uv.lock bring."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    waiting = list(entries)
    while waiting:
        entry = waiting.pop()
        name, extras = entry["name"], tuple(entry.get("extra", ()))
        if (name, extras) in found:
            continue
        found.add((name, extras))
        for package in (p for p in packages if p["name"] == name):
            waiting += package.get("dependencies", ())
            waiting += (e for extra in extras for e in package.get("optional-dependencies", {}).get(extra, ()))
    return {name for name, _ in found}


def test_ci_runs_on_each_python_that_is_supported_tries_the_wheel_on_another_and_the_adapters_on_one() -> None:
    from packaging.specifiers import SpecifierSet

    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"].values()
    supported = SpecifierSet(PROJECT["requires-python"])
    matrix = job["strategy"]["matrix"]
    assert matrix["python"] == [v for v in (f"3.{minor}" for minor in range(40)) if v in supported]
    assert [row["python"] for row in matrix["include"]] == matrix["python"]
    assert all(row["other"] in matrix["python"] and row["other"] != row["python"] for row in matrix["include"])
    assert sum(row.get("adapters") == "1" for row in matrix["include"]) == 1
    (installed,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    assert installed.split("\n")[:2] == ["${{ matrix.other }}", "${{ matrix.python }}"]
    assert job["env"] == {
        "PYTHON": "python${{ matrix.python }}",
        "OTHER_PYTHON": "python${{ matrix.other }}",
        "ADAPTERS": "${{ matrix.adapters }}",
    }


def test_python_3_11_to_3_14_are_supported_and_triton_s_wheel_is_for_the_first_two() -> None:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    supported = SpecifierSet(PROJECT["requires-python"])
    asked = ("3.10.9", "3.11.0", "3.12.9", "3.13.0", "3.14.1", "3.15.0")
    assert [v for v in asked if v in supported] == ["3.11.0", "3.12.9", "3.13.0", "3.14.1"]
    for requirement in map(Requirement, PROJECT["optional-dependencies"]["server"]):
        assert requirement.marker
        assert [v for v in ("3.11", "3.12", "3.13") if requirement.marker.evaluate({"python_version": v})] == [
            "3.11",
            "3.12",
        ]
