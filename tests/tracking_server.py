"""A real tracking server on loopback, whose webhooks may call loopback too. A fixture of all tests (conftest.py)."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

MLFLOW = Path(sys.executable).with_name("mlflow")
SETTINGS = {
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_CACHE_TTL": "0",  # a webhook counts from the next event on
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its queues lie in a folder of /dev/shm that MLflow never removes
}


@pytest.fixture(scope="session")
def tracking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [MLFLOW, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{root / 'mlflow.db'}",
        "--artifacts-destination",
        str(root / "artifacts"),
    ]
    with subprocess.Popen(
        command,
        cwd=root,
        env=os.environ | SETTINGS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            _until_it_answers(f"{url}/health", process)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def _until_it_answers(url: str, process: subprocess.Popen) -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)  # a closed port gives no event to wait for
    raise AssertionError("the tracking server ended before it answered")
