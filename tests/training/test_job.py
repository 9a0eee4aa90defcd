"""The Job for Kubernetes with two processes, on this machine's CPU: what a pod of it runs, killed and begun again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import mlflow
import psutil
import pytest
import yaml

from revelator.artifact import read_manifest, verify_adapter
from revelator.errors import ConfigError

JOB = Path(__file__).parents[2] / "deploy" / "kubernetes" / "training"
VOLUME = "/srv/training"
PROGRAM = Path(sys.executable).with_name("revelator")
WEIGHTS = "adapter_model.safetensors"
SETTINGS = {
    "steps": 24,
    "batch_size": 4,
    "learning_rate": 1e-2,
    "save_every": 2,
    "log_every": 1,
    "threads": 1,
    "lora": {"dropout": 0.1},
    "evaluation": {"every": 12, "rows_per_task": 2},
}


def write_command(volume: Path, **changes: Path | str) -> list[str]:
    """The command of the Job's pod, for a volume that lies elsewhere, with other settings for these names."""
    [box] = yaml.safe_load((JOB / "job.yaml").read_text())["spec"]["template"]["spec"]["containers"]
    [made] = yaml.safe_load((JOB / "kustomization.yaml").read_text())["configMapGenerator"]
    settings = dict(line.split("=", 1) for line in made["literals"]) | {name: str(to) for name, to in changes.items()}
    words = [re.sub(r"\$\((\w+)\)", lambda name: settings[name[1]], word) for word in box["args"]]
    return [str(PROGRAM), *(word.replace(VOLUME, str(volume)) for word in words)]


def kill(command: list[str], environment: dict[str, str], *, rank: str | None) -> tuple[int, str]:
    """Runs `command` for five steps, and kills the process of `rank`, or without one the command itself. Returns its
    exit status and what was printed until none of its processes was left to print anything."""
    said = []
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as pod:
        assert pod.stderr
        for line in pod.stderr:
            said.append(line)
            if line.startswith("step ") and sum(each.startswith("step ") for each in said) == 5:
                family = [psutil.Process(pod.pid), *psutil.Process(pod.pid).children(recursive=True)]
                [chosen] = [one for one in family if one.environ().get("RANK") == rank][:1]
                chosen.kill()
    return pod.returncode, "".join(said)


def read_step(checkpoint: str) -> int:
    return int(checkpoint.rpartition("-")[2])


def read_curve(volume: Path, adapter: Path, name: str) -> list[tuple[int, float]]:
    """(step, value): a step that was trained again is one point if it is the same."""
    client = mlflow.MlflowClient(f"sqlite:///{volume / 'mlflow.db'}")
    return sorted({(m.step, m.value) for m in client.get_metric_history(read_manifest(adapter).run_id, name)})


@pytest.mark.timeout(900)  # four starts of two processes; how busy the machine is must not decide
def test_pods_that_are_killed_leave_the_adapter_of_one_that_was_not(
    base: Path, set_folder: Path, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copy(empty_store, tmp_path)
    (tmp_path / "settings.yaml").write_text(json.dumps(SETTINGS))
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment |= {"OMP_NUM_THREADS": "1"}
    straight, killed = tmp_path / "adapters" / "straight", tmp_path / "adapters" / "killed"
    asked = {"CONFIG": tmp_path / "settings.yaml", "BASE": base, "SET": set_folder, "CARDS": "2"}
    subprocess.run(write_command(tmp_path, **asked, OUT=straight), env=environment, capture_output=True, check=True)

    command = write_command(tmp_path, **asked, OUT=killed)
    status, first = kill(command, environment, rank="1")  # as the kernel does where memory is short
    assert status not in (0, ConfigError.exit_status), "which would end the Job"
    [kept] = re.findall(r"with --resume goes on from (\S+)", first)
    assert 4 <= read_step(kept) < 24
    status, second = kill(command, environment, rank=None)  # and the others end of themselves
    assert status == -signal.SIGKILL
    assert f"going on from {kept}\n" in second and "step 24/24" not in second
    assert not killed.exists()

    third = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr
    [last] = re.findall(r"going on from (\S+)\n", third.stderr)
    assert read_step(kept) < read_step(last) < 24
    verify_adapter(killed, base)
    assert read_manifest(straight).files[WEIGHTS] == read_manifest(killed).files[WEIGHTS]
    for name in ("train/loss", "train/tokens", "dev/loss", "dev/score"):
        curve = read_curve(tmp_path, killed, name)
        assert curve == read_curve(tmp_path, straight, name) and curve[-1][0] == 24
    assert sorted(path.name for path in straight.parent.iterdir()) == ["killed", "straight"]
