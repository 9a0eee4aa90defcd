"""`revelator data inspect --held-out` over everything that training reads: sets, a world beside GRPO, running text."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from data_gen.world.generate import generate
from revelator.cli import revelator
from revelator.errors import ArtifactError, DataError
from revelator.fingerprints import hash_question
from training.rewards import read_answers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds") / "world"
    generate(60, 5, folder)
    return folder


def leaks(held: list[str], folder: Path, *places: Path) -> dict[str, Any]:
    """What the command reports of `places` when the questions `held` are held out; its status says whether it found."""
    lines = [f"{hash_question(text)}  secret-test\n" for text in held]
    (folder / "held.sha256").write_text("".join(lines), encoding="utf-8")
    arguments = ["data", "inspect", *map(str, places), "--held-out", str(folder / "held.sha256"), "--json"]
    result = CliRunner().invoke(revelator, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    report = json.loads(result.stdout)
    assert result.exit_code == bool(report["found"])
    return report


def test_every_question_that_grpo_reads_of_a_world_is_looked_at(world: Path, tmp_path: Path) -> None:
    read = {hash_question(text): text for text in read_answers(world)}
    report = leaks(list(read.values()), tmp_path, world)
    assert {hash_question(leak["text"]) for leak in report["found"]} == set(read)
    assert report["records"] == 60 and {leak["held_out"] for leak in report["found"]} == {"secret-test"}


@pytest.mark.parametrize("given", ["questions.jsonl", "copy.jsonl.gz", "."])
def test_a_world_is_a_folder_or_its_file_gzipped_or_not(world: Path, tmp_path: Path, given: str) -> None:
    (world / "copy.jsonl.gz").write_bytes(gzip.compress((world / "questions.jsonl").read_bytes()))
    rows = [json.loads(line) for line in (world / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    row = next(row for row in rows if len(row["steps"]) > 1)
    step = row["steps"][-1]["question"]
    found = leaks([step.upper()], tmp_path, world / given)["found"]
    assert found and {leak["text"] for leak in found} == {step} and row["id"] in {leak["id"] for leak in found}
    assert leaks(["Who is not in this world?"], tmp_path, world / given)["found"] == []


def test_questions_parts_leaves_and_passages_of_rows_are_looked_at_and_each_is_told_once(tmp_path: Path) -> None:
    row = {
        "id": "mine:1",
        "question": "Who founded the maker of Tin Comet?",
        "expression": "(Who made Tin Comet? + Who sent it out?) * Who founded {maker}?",
        "parts": ["Who made Tin Comet?"],
        "passages": [{"title": "Quill", "text": "A feather.\nIs it used to write with? It is.", "relevant": False}],
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps(row) + "\n")
    held = ["who sent it out", "Who made Tin-Comet?", "is it used to write with", row["question"], "A feather"]
    found = leaks(held, tmp_path, tmp_path)["found"]
    assert sorted(hash_question(leak["text"]) for leak in found) == sorted(map(hash_question, held))
    assert {leak["id"] for leak in found} == {"mine:1"}


def test_running_text_and_tables_are_looked_through_by_line(tmp_path: Path) -> None:
    articles = [{"title": "Orn", "text": "A river."}, {"title": "Marn", "text": "So they ask: who leads Marn? Nobody."}]
    (tmp_path / "articles.jsonl").write_text("".join(json.dumps(article) + "\n" for article in articles))
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["question", "answer"], ["Who leads Orn?", "Una"]])
    both = tmp_path / "articles.jsonl", tmp_path / "pairs.csv"
    held = ["Who leads Marn?", "who leads Orn"]
    assert [(Path(leak["set"]).name, leak["id"]) for leak in leaks(held, tmp_path, *both)["found"]] == [
        ("articles.jsonl", "line 2"),
        ("pairs.csv", "line 2"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Nobody knew. {}",
        "Question: {}\nAnswer:",
        "Question: who leads marn\nAnswer:",
        'Nobody asks "{}"',
        "1. {}",
        "a + {} * b",
    ],
)
def test_a_question_is_found_within_a_line(text: str, tmp_path: Path) -> None:
    row = {"maps": [("key", {text.format("Who leads Marn?"): 1})]}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    assert [leak["id"] for leak in leaks(["who leads Marn"], tmp_path, tmp_path / "rows.json")["found"]] == ["line 1"]


def test_what_is_found_before_a_broken_row_is_told(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "Who leads Marn?"}\n{"question": \n')
    (tmp_path / "held.sha256").write_text(f"{hash_question('Who leads Marn?')}  secret-test\n")
    command = ["data", "inspect", str(tmp_path / "rows.jsonl"), "--held-out", str(tmp_path / "held.sha256")]
    result = CliRunner().invoke(revelator, command)
    assert "line 1: secret-test: Who leads Marn?" in result.stdout and isinstance(result.exception, DataError)


def test_no_hashes_and_no_texts_are_no_pass_in_silence(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"number": 1}\n')
    with pytest.raises(DataError, match="no hashes"):
        leaks([], tmp_path, tmp_path / "rows.jsonl")
    assert leaks(["Who?"], tmp_path, tmp_path / "rows.jsonl") | {"hashes": 0} == {
        "records": 1, "texts": 1, "hashes": 0, "found": [],
    }  # fmt: skip


def test_what_cannot_be_looked_through_is_named_and_never_passes(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "Who?"}\n{"question": \n')
    with pytest.raises(DataError, match="not JSON") as caught:
        leaks(["Where?"], tmp_path, tmp_path)
    assert caught.value.where == f"{tmp_path / 'questions.jsonl'}, line 2"
    with pytest.raises(DataError, match="no such file"):
        leaks(["Where?"], tmp_path, tmp_path / "none.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="not an instruction set"):
        leaks(["Where?"], tmp_path, tmp_path / "empty")
