"""The served world as each test of a real server finds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import tritonclient.grpc as grpc_client

from revelator.client import Client

FAST = "Where is Sarnath?"
WAIT = 30.0
SLOW = 150.0  # a start takes 10 s of processor time; how busy the machine is must not decide


def wait_until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + SLOW
    while not is_so():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.05)


@pytest.fixture
def world(served):
    """The served world with its endpoint's knowledge as it was before, and all of its places free."""
    served.endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
        FAST: ["Orland"],
    }
    yield served
    for gate in served.endpoint.gates.values():
        gate.set()
    wait_until(lambda: not served.questions.admission.in_flight)
    served.endpoint.gates.clear()
    served.endpoint.down.clear()


@pytest.fixture
def client(world) -> Iterator[Client]:
    with Client(world.url, timeout=WAIT) as client:
        yield client


@pytest.fixture
def triton(world) -> Iterator[grpc_client.InferenceServerClient]:
    with grpc_client.InferenceServerClient(world.url) as triton:
        yield triton
