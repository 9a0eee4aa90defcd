"""`revelator eval reading` with the reader that ships."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from evaluation.reading import reading
from revelator.artifact import EMBEDDED_READER
from revelator.reading import open_folder

ROW = {"id": "1", "question": "Who rules Sarnath?", "title": "Sarnath", "passage": "Sarnath is ruled by Ivo Marek."}


def test_the_reader_that_ships_is_whole_and_small() -> None:
    folder = open_folder(EMBEDDED_READER)  # every file by its digest
    assert folder.weights_path.stat().st_size < 24e6
    assert sorted(path.suffix for path in EMBEDDED_READER.iterdir() if path.stat().st_size > 1e5) == [".safetensors"]


def test_it_reads_without_being_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW | {"answers": [{"text": "Ivo Marek", "start": 20}]}) + "\n")
    said = CliRunner().invoke(reading, [str(tmp_path / "rows.jsonl"), "--json"], catch_exceptions=False)
    assert json.loads(said.stdout)["em"] == 1
