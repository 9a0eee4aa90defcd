"""A real tracking server on loopback, a fixture of all tests (conftest.py), and spans that are told to it."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from revelator import registry, spans
from revelator.span_exporter import LinkingExporter
from tests.loopback import find_port

MLFLOW = Path(sys.executable).with_name("mlflow")
SETTINGS = {
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",  # a receiver on loopback
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_CACHE_TTL": "0",  # it would miss a new webhook for a minute after another promotion
    "MLFLOW_GATEWAY_API_BASE_ALLOWED_SCHEMES": "http,https",  # a service on loopback, too
    "MLFLOW_GATEWAY_API_BASE_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_CRYPTO_KEK_PASSPHRASE": "a passphrase of these tests",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its queues lie in a folder of /dev/shm that MLflow never removes
}


@pytest.fixture(scope="session")
def tracking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("server")
    port = find_port()
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
            until_it_answers(f"{url}/health", process)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@contextmanager
def telling_spans(
    tracking_server: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    processor: Callable[[SpanExporter], SpanProcessor] = SimpleSpanProcessor,
) -> Iterator[str]:
    """This process tells the tracking server its spans, by default each at once, in an experiment named as the folder
    `home`. Gives the experiment's id."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server)
    registry.connect(home)
    number = mlflow.MlflowClient().create_experiment(home.name)
    provider = TracerProvider()
    to = {"x-mlflow-experiment-id": number}
    exporter = LinkingExporter(f"{tracking_server}/v1/traces", spans.MODEL_ID, to)
    provider.add_span_processor(processor(exporter))
    spans.start("test", provider.get_tracer("test"))
    yield number
    spans._tracer = None
    provider.shutdown()


def until_it_answers(url: str, process: subprocess.Popen) -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)  # a closed port gives no event to wait for
    raise AssertionError(f"the server ended before it answered at {url}")
