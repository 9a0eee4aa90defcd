"""The MLflow project: its environment is the package's, its entry points are commands that exist."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from revelator.cli import revelator

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = yaml.safe_load((ROOT / "mlflow" / "MLproject").read_text())["entry_points"]


def test_its_environment_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "mlflow" / "python_env.yaml").read_text())
    assert environment["dependencies"] == project["dependencies"]


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_is_a_command_with_options_that_it_has(name: str) -> None:
    words = shlex.split(ENTRY_POINTS[name]["command"].split("main()' ")[1])
    context = click.Context(revelator)
    command = revelator.get_command(context, words[0])
    if isinstance(command, click.Group):
        command = command.get_command(context, words[1])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    used = {word.strip("{}") for word in words if word.startswith("{")}
    assert used == set(ENTRY_POINTS[name]["parameters"])


def test_there_is_an_entry_point_for_each_stage() -> None:
    assert {"data", "train", "evaluate", "promote"} <= set(ENTRY_POINTS)


def test_an_entry_point_runs_what_it_says_in_the_environment_of_mlflow(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    environment = {
        **outside,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
    }
    given = {"size": 20, "seed": 3, "out": tmp_path / "world"}
    parameters = [word for name, value in given.items() for word in ("-P", f"{name}={value}")]
    command = [programs / "mlflow", "run", ROOT / "mlflow", "-e", "world", "--env-manager", "local", *parameters]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "world" / "manifest.json").read_text())["seed"] == 3
