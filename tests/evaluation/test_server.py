"""A server for the length of a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.chains.server import local_server
from revelator.errors import Unavailable


def test_a_server_that_does_not_start_is_told_of_in_its_own_words(tmp_path: Path) -> None:
    serve = ("serve", "--home", str(tmp_path))
    with (
        pytest.raises(Unavailable, match="no version of the revelator is deployed") as failure,
        local_server(tmp_path, serve),
    ):
        pytest.fail("nothing is deployed, so nothing can be ready")
    assert failure.value.where == f"revelator serve --home {tmp_path}"
