"""What runs log to a real tracking server side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pytest

from revelator import registry
from training.tracking import log_data_set

SETS = 12  # of which MLflow alone refuses one run in a third


def test_two_runs_that_log_a_new_data_set_at_once_both_have_it(
    tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server)
    registry.connect(tmp_path)
    both = threading.Barrier(2)

    def log(digest: str) -> str:
        with mlflow.start_run() as run:
            both.wait()
            log_data_set(tmp_path, {"digest": digest})
        return run.info.run_id

    with ThreadPoolExecutor(2) as pool:
        runs = {f"{number}": list(pool.map(log, [f"{number}"] * 2)) for number in range(SETS)}
    for digest, pair in runs.items():
        for run in pair:
            assert [used.dataset.digest for used in mlflow.get_run(run).inputs.dataset_inputs] == [digest]
