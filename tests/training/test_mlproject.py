"""The MLflow project: its environment is the package's, its entry points are commands that exist."""

import shlex
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
    command = revelator.get_command(click.Context(revelator), words[0])
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    used = {word.strip("{}") for word in words if word.startswith("{")}
    assert used == set(ENTRY_POINTS[name]["parameters"])


def test_the_tracking_server_listens_on_loopback_alone() -> None:
    services = yaml.safe_load((ROOT / "mlflow" / "compose.yaml").read_text())["services"]
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"])
