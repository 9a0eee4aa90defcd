"""The toy world as a fixture."""

import pytest

from tests.serving.executor.world import Toy
from tests.serving.knowledge.conftest import films, web  # noqa: F401  fixtures


@pytest.fixture(scope="session")
def toy() -> type[Toy]:
    return Toy
