"""A run's folder: what is written is read back, and what would mix two runs is refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.harness.folder import (
    METRICS,
    QUESTIONS,
    RUN,
    Cost,
    QuestionRow,
    Run,
    begin_run,
    read_metrics,
    read_questions,
    read_run,
)
from evaluation.rows import append_rows, continue_rows, lock_folder
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import sha256_file, write_json

MADE = Run(
    config={"benchmark": {"format": "musique"}, "concurrency": 2},
    command="revelator eval run a.yaml",
    benchmark={"name": "musique", "version": "1.0", "normaliser": "musique", "files": {"a.jsonl": "1" * 64}},
    system={"kind": "strategy", "name": "auto"},
    ablation={"refine": False},
    ids=("a", "b", "c"),
    adapter={"manifest": "2" * 64},
    index={"folder": "i", "digest": "3" * 64},
)


def row(id: str, **values: Any) -> QuestionRow:
    return QuestionRow(id, "musique", f"Who is {id}?", ("Ada", "A"), cost=Cost(3, 4), **values)


def write(folder: Path, *ids: str) -> None:
    for id in ids:
        append_rows(folder / QUESTIONS, [row(id)])


def test_one_process_writes_in_a_folder_at_a_time(tmp_path: Path) -> None:
    again = pytest.raises(ConfigError, match="is measuring here")
    with lock_folder(tmp_path / "run"), again, lock_folder(tmp_path / "run"):
        pass
    with lock_folder(tmp_path / "run"):
        assert list((tmp_path / "run").iterdir()) == [], "nothing is left by a hold"
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="this is a file"), lock_folder(tmp_path / "file"):
        pass


def test_rows_are_read_back_as_they_were_written_in_the_order_of_the_run(tmp_path: Path) -> None:
    assert begin_run(tmp_path / "run", MADE) == []
    write(tmp_path / "run", "c", "a")
    assert begin_run(tmp_path / "run", MADE) == [row("a"), row("c")]
    write(tmp_path / "run", "b")
    assert read_questions(tmp_path / "run") == [row("a"), row("b"), row("c")]
    assert read_run(tmp_path / "run") == MADE


def test_a_row_that_a_kill_cut_short_is_asked_again(tmp_path: Path) -> None:
    begin_run(tmp_path / "run", MADE)
    write(tmp_path / "run", "a", "b")
    path = tmp_path / "run" / QUESTIONS
    path.write_bytes(path.read_bytes()[:-9])
    assert begin_run(tmp_path / "run", MADE) == [row("a")]
    write(tmp_path / "run", "b", "c")
    assert len(read_questions(tmp_path / "run")) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"benchmark": MADE.benchmark | {"files": {"a.jsonl": "9" * 64}}}, "benchmark.files (sha256): ['1111"),
        ({"benchmark": MADE.benchmark | {"version": "2"}}, "benchmark.version: 1.0 there, 2 now"),
        ({"index": {"digest": "4" * 64}}, "index.digest: 3333"),
        ({"adapter": {"manifest": "5" * 64}}, "adapter.manifest"),
        ({"ablation": {}}, "ablation"),
        ({"ids": ("a", "b", "d")}, "ids: 3 questions there, 3 others now"),
        ({"code": "x"}, "code"),
        ({"config": {"benchmark": {"format": "musique"}, "concurrency": 4}}, "config.concurrency: 2 there, 4 now"),
    ],
)
def test_a_folder_of_another_run_is_refused_by_what_differs(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    begin_run(tmp_path / "run", MADE)
    with pytest.raises(ArtifactError) as refused:
        begin_run(tmp_path / "run", replace(MADE, **change))
    assert said in str(refused.value)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and no run"):
        begin_run(tmp_path, MADE)
    with pytest.raises(ArtifactError, match=r"run\.json is missing"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (("a", "b"), "1 id (c) missing"),
        (("a", "b", "c", "b"), "1 id (b) twice"),
        (("a", "b", "c", "z"), "1 id (z) of no question"),
    ],
)
def test_missing_doubled_and_foreign_ids_are_named(tmp_path: Path, ids: tuple[str, ...], said: str) -> None:
    begin_run(tmp_path / "run", MADE)
    write(tmp_path / "run", *ids)
    with pytest.raises(DataError) as refused:
        read_questions(tmp_path / "run")
    assert said in str(refused.value)


def test_what_was_changed_by_hand_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin_run(folder, MADE)
    write(folder, "a", "b", "c")
    with pytest.raises(ArtifactError, match=r"metrics\.json is missing"):
        read_metrics(folder)
    write_json(folder / METRICS, {"questions_sha256": sha256_file(folder / QUESTIONS)})
    read_metrics(folder)
    with (folder / QUESTIONS).open("a") as file:
        file.write("no row\n")
    with pytest.raises(ArtifactError, match="changed after it was measured"):
        read_metrics(folder)
    with pytest.raises(DataError, match="line 4"):
        read_questions(folder)
    value = json.loads((folder / RUN).read_text())
    write_json(folder / RUN, value | {"config": {}})
    with pytest.raises(ArtifactError, match="configuration was changed"):
        read_run(folder)


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
    append_rows(tmp_path / "rows.jsonl", rows)
    assert (tmp_path / "rows.jsonl").read_bytes() == whole * 2
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl, line 1"):
        continue_rows(tmp_path / "rows.jsonl", Kept)
