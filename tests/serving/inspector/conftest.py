"""One inspector for the tests that only ask; each module has its own folder of runs."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.serving.inspector.world import Asked, asking, inspecting, runs_in, speaking


@pytest.fixture(scope="module")
def asked() -> tuple[Asked, Asked]:
    return Asked("127.0.0.1:8001", "7"), Asked("127.0.0.1:9001", "8")


@pytest.fixture(scope="module")
def address(asked: tuple[Asked, Asked], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with inspecting([one.server() for one in asked], runs_in(tmp_path_factory.mktemp("home"))) as url:
        yield url


@pytest.fixture(scope="module")
def http(address: str) -> Iterator[httpx.Client]:
    with asking(address) as client:
        yield client


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with speaking(address) as client:
        yield client
