"""The MLflow project: its environment is the package's, its entry points are commands that exist."""

import json
import os
import shlex
import sys
import tomllib
from pathlib import Path

import click
import mlflow
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.exceptions import ExecutionException

from revelator.cli import revelator

ROOT = Path(__file__).parents[2]
ENTRY_POINTS = yaml.safe_load((ROOT / "mlflow" / "MLproject").read_text())["entry_points"]


def test_its_environment_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "mlflow" / "python_env.yaml").read_text())
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["data"], *extras["train"], *extras["serve"], *extras["eval"]]
    assert environment["dependencies"] == list(dict.fromkeys(d for d in wanted if not d.startswith("revelator[")))


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_is_a_command_with_options_that_it_has(name: str) -> None:
    words = shlex.split(ENTRY_POINTS[name]["command"].split("main()' ")[1])
    command: click.Command | None = revelator
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(revelator), word)
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    used = {word.strip("{}") for word in words if word.startswith("{")}
    assert used == set(ENTRY_POINTS[name]["parameters"])


def test_there_is_an_entry_point_for_each_stage() -> None:
    assert {"data", "train", "evaluate", "promote"} <= set(ENTRY_POINTS)


def test_the_entry_points_run_one_after_another_in_the_environment_of_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """From a world to the gate, with an adapter of two steps."""
    for name in filter(lambda name: name.startswith("MLFLOW_"), list(os.environ)):
        monkeypatch.delenv(name)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("REVELATOR_WORLD", str(tmp_path / "world"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(ROOT)
    mlflow.set_tracking_uri(store)
    mlflow.create_experiment("project", artifact_location=(tmp_path / "artifacts").as_uri())
    (tmp_path / "two.yaml").write_text(
        "steps: 2\nbatch_size: 2\nlearning_rate: 1.0e-4\ntasks: {route: 1}\nevaluation: {every: 2, rows_per_task: 2}\n"
    )

    def run(entry: str, **given: object) -> None:
        parameters = {name: str(value) for name, value in given.items()}
        # an experiment by its name: MLflow remembers the number of another test's, of another store
        mlflow.projects.run(
            str(ROOT / "mlflow"), entry, parameters=parameters, experiment_name="project", env_manager="local"
        )

    run("world", size=60, seed=3, out=tmp_path / "world")
    assert json.loads((tmp_path / "world" / "manifest.json").read_text())["seed"] == 3
    run("data", out=tmp_path / "set")
    run("train", config=tmp_path / "two.yaml", set=tmp_path / "set", home=tmp_path)
    assert (tmp_path / "adapters" / "two" / "manifest.json").is_file()
    rules = (ROOT / "evaluation" / "gate" / "gate.yaml").read_text().replace("minimum: 100", "minimum: 0")
    (tmp_path / "rules.yaml").write_text(rules)
    try:
        run("promote", home=tmp_path, limit=2, rules=tmp_path / "rules.yaml")
        aliases = {"champion": 1}
    except ExecutionException:  # two rows a task are few: what the gate decides of them is not promised
        assert "under its floor" in capfd.readouterr().err
        aliases = {}
    assert MlflowClient(store).get_registered_model("revelator").aliases == aliases
