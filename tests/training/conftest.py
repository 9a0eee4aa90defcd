from pathlib import Path

import pytest

from tests.training.toy import write_base, write_set


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base") / "toy")


@pytest.fixture(scope="session")
def set_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("set") / "toy")
