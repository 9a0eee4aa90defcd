"""A training that is killed again and again, during its resumes as well, ends in the adapter of one that was not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from revelator.artifact import read_manifest, verify_adapter
from tests.training import kill_resumes

KILLS = 6
SETTINGS = {
    "steps": 20,
    "epochs": 1,
    "batch_tokens": 1600,
    "max_length": 512,
    "gradient_accumulation": 3,
    "learning_rate": 1e-2,
    "save_every": 2,
    "log_every": 1,
    "threads": 1,
    "lora": {"dropout": 0.1},
    "evaluation": {"every": 10, "rows_per_task": 4},
}
WEIGHTS = "adapter_model.safetensors"


@pytest.mark.timeout(900)
def test_resumes_killed_at_random_moments_leave_the_adapter_of_an_uninterrupted_run(
    base: Path, set_folder: Path, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copy(empty_store, tmp_path)
    values = json.dumps({**SETTINGS, "base": str(base), "sets": [str(set_folder)]})
    known = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    done = subprocess.run(
        [sys.executable, kill_resumes.__file__, values, str(tmp_path), str(KILLS), "5"],
        env={**known, "REVELATOR_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    *kills, last = done.stdout.splitlines()
    told = [json.loads(line) for line in kills if line.startswith("{")]
    assert sum(kill["resume"] for kill in told) == KILLS
    straight, resumed = tmp_path / "adapters" / "measured", Path(last)
    verify_adapter(resumed, base)
    assert read_manifest(straight).files[WEIGHTS] == read_manifest(resumed).files[WEIGHTS]
