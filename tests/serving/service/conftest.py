"""The service as a test finds it: a real one on loopback, in a thread of this process, with an endpoint that reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tritonclient.grpc as grpc_client
import trustme

from revelator.channels import Tls
from revelator.client import Client
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.home.running import RunningServer
from serving.service.questions import Questions
from tests.conftest import Endpoint
from tests.service_thread import serve_in_thread

MAX_IN_FLIGHT = 4  # of which three work while one waits
FAST, QUESTION = "Where is Sarnath?", "Where was the director of Lantern Row born?"
PLAN = "Who directed Lantern Row? * Where was {director} born?"
WAIT = 30.0


@dataclass
class Service:
    home: Path
    running: RunningServer
    questions: Questions
    endpoint: Endpoint

    @property
    def url(self) -> str:
        return self.running.grpc

    def hold(self, name: str, count: int) -> list[str]:
        """Questions that the endpoint answers once `release` is called."""
        held = [f"Who directed Lantern Row, {name} {n}?" for n in range(count)]
        for question in held:
            self.endpoint.gate(question, "Ines Calloway")
        return held

    def await_start(self, *questions: str) -> None:
        for question in questions:
            assert self.endpoint.started[question].wait(WAIT)

    def await_count(self, *, in_flight: int = 0, waiting: int = 0) -> None:
        end, admission = time.monotonic() + WAIT, self.questions.admission
        while (admission.in_flight, admission.waiting) != (in_flight, waiting):
            assert time.monotonic() < end
            time.sleep(0.01)

    def release(self) -> None:
        for gate in self.endpoint.gates.values():
            gate.set()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    return Tls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder whose release is the embedded base."""
    home = tmp_path_factory.mktemp("service")
    release_embedded_base(home)
    return home


@pytest.fixture(scope="session")
def config(home: Path, index: Path, endpoint: Endpoint) -> ServingConfig:
    """The endpoint reads and merges nothing, nobody judges, and nothing is answered from memory, so that a test can
    count what it was asked."""
    reader = {"generator": endpoint.url, "generator_model": "m", "text": False, "judge": "none"}
    return configure(home, index=index, max_in_flight=MAX_IN_FLIGHT, answer_cache=False, **reader)


@pytest.fixture(scope="session")
def one_service(home: Path, config: ServingConfig, endpoint: Endpoint) -> Iterator[Service]:
    with serve_in_thread(home, config) as (questions, running):
        yield Service(home, running, questions, endpoint)


@pytest.fixture
def service(one_service: Service) -> Iterator[Service]:
    """The service with the endpoint's knowledge as it was before, and all of its places free."""
    one_service.endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
        FAST: ["Orland"],
    }
    yield one_service
    one_service.release()
    one_service.await_count()
    one_service.endpoint.gates.clear()
    one_service.endpoint.down.clear()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, timeout=WAIT) as client:
        yield client


@pytest.fixture
def triton(service: Service) -> Iterator[grpc_client.InferenceServerClient]:
    with grpc_client.InferenceServerClient(service.url) as triton:
        yield triton
