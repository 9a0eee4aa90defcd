"""Connections that say nothing: thousands keep nobody out, and each is closed after a while."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from revelator.client import Client
from serving.home.config import ServingConfig
from serving.home.running import find_running_server
from serving.service import grpc_front, http_front
from tests.conftest import Endpoint
from tests.serving.service.conftest import FAST, WAIT, serve_in_thread
from tests.serving.service.test_ended import serving

SILENT = 5_000  # on each port: 10⁴
FEW_FILES = 1_024  # the usual soft limit


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process holds the clients' ends, and starts the service with the usual limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * SILENT:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT)


def test_thousands_of_silent_connections_keep_nobody_out(many_files, tmp_path: Path, index: Path, endpoint: Endpoint):
    endpoint.knowledge[FAST] = ["Orland"]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, hard))
    with serving(tmp_path / "home", index, endpoint) as (process, url), ExitStack() as silent:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        running = find_running_server(tmp_path / "home")
        assert running and running.http
        assert psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
        for address in (url, urlsplit(running.http).netloc):
            for _ in range(SILENT):
                silent.enter_context(closing(connect(address)))
        with Client(url, timeout=WAIT) as client:
            assert client.ask(FAST, strategy="single").answers == ("Orland",)
        assert httpx.get(f"{running.http}/health", timeout=WAIT).json() == {"status": "ready"}
        assert process.poll() is None


def test_a_silent_connection_is_closed_and_one_that_asks_is_answered(config: ServingConfig, monkeypatch, tmp_path):
    monkeypatch.setattr(http_front, "ARRIVAL_SECONDS", 0.5)
    monkeypatch.setattr(grpc_front, "HANDSHAKE_SECONDS", 0.5)
    config = ServingConfig(**{**dict(config), "planner": {"url": config.generator, "model": "m"}})  # loads nothing
    with serve_in_thread(tmp_path, config) as (_, running):
        assert running.http
        http = urlsplit(running.http).netloc
        for address, said in ((http, b""), (http, b"GET /health HTTP/1.1\r\nHost: a"), (running.grpc, b"")):
            with closing(connect(address)) as connection:
                connection.sendall(said)
                while connection.recv(1 << 16):  # gRPC says its settings first
                    pass
        assert httpx.get(f"{running.http}/health", timeout=WAIT).json() == {"status": "ready"}
