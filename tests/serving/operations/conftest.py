"""One service as it is run where others can reach it: mutual TLS, lowered limits, its models on a Triton server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from revelator import registry
from revelator.channels import Tls
from serving.deploy.deploy import deploy
from serving.home.running import RunningServer, find_running_server
from tests.serving.operations.receiver import Receiver, receiving
from tests.triton_wheel import require_triton

START_SECONDS = 240.0


@dataclass
class Operated:
    """`tls` are a client's files, `own` the service's; `stranger` is a client of another authority. `receiver` has the
    spans of all."""

    home: Path
    running: RunningServer
    tls: Tls
    own: Tls
    stranger: Tls
    receiver: Receiver


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def authority(tmp_path_factory) -> tuple[Tls, Tls, Tls]:
    """Files of a service, of a client, and of a client whom another authority signed."""
    folder = tmp_path_factory.mktemp("certificates")
    good, other = trustme.CA(), trustme.CA()
    good.cert_pem.write_to_path(folder / "ca.pem")

    def issue(name: str, ca: trustme.CA, identity: str) -> Tls:
        issued = ca.issue_cert(identity)
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        return Tls(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key", "revelator.test")

    service, client = issue("service", good, "revelator.test"), issue("client", good, "client.test")
    return service, client, issue("stranger", other, "client.test")


@pytest.fixture(scope="session")
def operated(registered, index, authority, receiver, tmp_path_factory) -> Iterator[Operated]:
    """A running `revelator serve`, for all tests of operations."""
    require_triton()
    own, client, stranger = authority
    home = tmp_path_factory.mktemp("operated")
    registry.connect(registered)
    deploy(home, registry.resolve(registry.NAME, 1))
    command = [Path(sys.executable).parent / "revelator", "serve", "--home", home, "--index", index]
    files = {"cert": own.cert, "key": own.key, "ca": own.ca}
    tls = {**{name: str(path) for name, path in files.items()}, "name": own.name, "mutual": True}
    limits = {"question_characters": 200, "leaves": 2, "options_bytes": 100_000}
    (home / "serving.yaml").write_text(json.dumps({"triton": "local", "tls": tls, "limits": limits}))
    log = (home / "serve.log").open("wb")
    tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    environment = {**os.environ, **tracing}
    process = subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + START_SECONDS
        while (running := find_running_server(home)) is None:
            assert process.poll() is None and time.monotonic() < end, (home / "serve.log").read_text()
            time.sleep(0.1)
        yield Operated(home, running, client, own, stranger, receiver)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        log.close()
