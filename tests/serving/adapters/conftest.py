"""A real service over the documents of `examples/faculty`, which the adapters of `examples/` ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.deploy.deploy import release_embedded_base
from serving.home.configure import configure
from serving.retrieval import build_index
from tests.service_thread import serve_in_thread

DOCUMENTS = Path(__file__).parents[3] / "examples" / "faculty" / "documents"


@pytest.fixture(scope="session")
def faculty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the service."""
    home = tmp_path_factory.mktemp("faculty")
    release_embedded_base(home)
    build_index([DOCUMENTS], home / "index")
    with serve_in_thread(home, configure(home, index=home / "index")) as (_, running):
        yield running.grpc


@pytest.fixture
def nowhere() -> str:
    """An address at which nobody answers."""
    return "127.0.0.1:1"
