"""The reference pages in the repository are what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
SPEC = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
assert SPEC is not None and SPEC.loader is not None
reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reference)


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == reference.PAGES[name](), "`make reference` writes it anew"
