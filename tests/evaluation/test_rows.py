"""Rows that are appended and read again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from evaluation.rows import append_rows, continue_rows
from revelator.errors import DataError


@dataclass(frozen=True)
class Kept:
    id: str
    right: bool


def test_a_line_cut_short_is_taken_off_and_rows_of_another_release_are_refused(tmp_path: Path) -> None:
    rows = [Kept("a", True), Kept("b", False)]
    append_rows(tmp_path / "rows.jsonl", rows)
    whole = (tmp_path / "rows.jsonl").read_bytes()
    (tmp_path / "rows.jsonl").write_bytes(whole + whole[:9])
    assert continue_rows(tmp_path / "rows.jsonl", Kept) == rows
    assert (tmp_path / "rows.jsonl").read_bytes() == whole
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl, line 1"):
        continue_rows(tmp_path / "rows.jsonl", Kept)
