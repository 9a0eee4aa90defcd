"""The gRPC health service, which Kubernetes' probes ask, on a real Triton server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from revelator.errors import ArtifactError
from serving.triton import control
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer, read_ports

SERVING = b"\x08\x01"  # HealthCheckResponse {status: SERVING}
WAIT = 30.0
CONFIG = """backend: "python"
input [{name: "a", data_type: TYPE_STRING, dims: [1]}]
output [{name: "b", data_type: TYPE_STRING, dims: [1]}]
"""
CODE = """import socket
class TritonPythonModel:
    def initialize(self, args):
        with socket.create_connection(("127.0.0.1", %d)) as test:
            if test.recv(1) != b"y":
                raise ValueError("it was told to fail")
    def execute(self, requests):
        return []
"""


@pytest.fixture
def gate() -> Iterator[socket.socket]:
    """Where a model that loads waits to be told whether it may."""
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(WAIT)
        yield gate


def test_a_server_is_healthy_while_a_model_loads_and_after_one_has_not(gate: socket.socket, tmp_path: Path):
    """A probe that failed meanwhile would end a server that answers: it says nothing of a model or version."""
    for model in ("slow", "broken"):
        (tmp_path / "models" / model / "1").mkdir(parents=True)
        (tmp_path / "models" / model / "config.pbtxt").write_text(CONFIG)
        (tmp_path / "models" / model / "1" / "model.py").write_text(CODE % gate.getsockname()[1])
    log = tmp_path / "triton.log"
    server = TritonServer(find_installation(tmp_path), tmp_path / "models", read_ports("auto"), log)
    with server, grpc.insecure_channel(server.url) as channel, ThreadPoolExecutor(1) as threads:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=WAIT) == SERVING
        for model, told in (("slow", b"y"), ("broken", b"n")):
            load = threads.submit(control.load, tmp_path, server.url, model, 1)
            waiting, _ = gate.accept()
            with waiting:
                assert check(b"", timeout=WAIT) == SERVING and not load.done()
                waiting.sendall(told)
            assert isinstance(load.exception(WAIT), ArtifactError if told == b"n" else type(None))
            assert check(b"", timeout=WAIT) == SERVING
