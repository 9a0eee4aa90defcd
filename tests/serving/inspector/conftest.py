"""One inspector for the tests that only ask; each module has its own folder of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving.inspector.world import Asked, inspecting, runs_in


@pytest.fixture(scope="module")
def asked() -> tuple[Asked, Asked]:
    return Asked("127.0.0.1:8001", "7"), Asked("127.0.0.1:9001", "8")


@pytest.fixture(scope="module")
def address(asked: tuple[Asked, Asked], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with inspecting([one.server() for one in asked], runs_in(tmp_path_factory.mktemp("home"))) as url:
        yield url
