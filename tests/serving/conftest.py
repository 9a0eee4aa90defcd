"""The served world as each test of a real server finds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tritonclient.grpc as grpc_client

from revelator.client import Client

FAST = "Where is Sarnath?"
WAIT = 30.0


@pytest.fixture
def world(served):
    """The served world with its endpoint's knowledge as it was before."""
    served.endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
        FAST: ["Orland"],
    }
    yield served
    for gate in served.endpoint.gates.values():
        gate.set()
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
