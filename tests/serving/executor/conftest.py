"""The toy world as a fixture."""

import pytest

from tests.serving.executor.world import Toy


@pytest.fixture(scope="session")
def toy() -> type[Toy]:
    return Toy
