"""Tests that need a Triton server: they are skipped, with the reason, on a machine without one."""

from __future__ import annotations

import pytest

from serving.triton.installation import is_installed

MISSING = "no Triton server is installed: its wheel is for Python 3.11 and 3.12"
needs_triton = pytest.mark.skipif(not is_installed(), reason=MISSING)


def require_triton() -> None:
    """Skips the test that asks for it, as of a fixture."""
    if not is_installed():
        pytest.skip(MISSING)
