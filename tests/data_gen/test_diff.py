from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.inspection import compare_sets
from data_gen.world.generate import generate
from revelator.cli import revelator
from revelator.errors import ArtifactError

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("world")
    generate(40, 5, folder)
    return [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A set of the given rows."""

    def _make(folder: str, rows: list[dict[str, Any]], **fields: Any) -> Path:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        source = {"format": "world", "path": str(tmp_path / "rows.jsonl"), "sub_questions": 0}
        build(SetConfig.model_validate({"name": "t", "sources": [source], **fields}), tmp_path / folder)
        return tmp_path / folder

    return _make


def run(old: Path, new: Path, *options: str) -> Any:
    return CliRunner().invoke(revelator, ["data", "inspect", str(new), "--against", str(old), *options])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--against", "old", "--held-out", "hashes"], "give one of --against and --held-out"),
        (["--held-out", "hashes", "--split", "dev"], "leave --split out"),
        (["another"], "several with --held-out"),
    ],
)
def test_one_look_at_a_time_is_taken(options: list[str], said: str) -> None:
    looked = CliRunner().invoke(revelator, ["data", "inspect", "new", *options])
    assert looked.exit_code == 2 and said in looked.stderr


def test_two_builds_of_one_configuration_hold_the_same(make: Make, world: list[dict[str, Any]]) -> None:
    old, new = make("old", world), make("new", world)
    assert compare_sets(old, new)["same"]
    ran = run(old, new)
    assert ran.exit_code == 0 and "hold the same" in " ".join(ran.stdout.split())


def count(found: dict[str, Any], kind: str, task: str) -> int:
    return sum(row[kind] for row in found["records"] if row["task"] == task)


def test_records_are_counted_by_task_and_source(make: Make, world: list[dict[str, Any]]) -> None:
    came, gone, *kept = world
    old, new = make("old", [gone, *kept]), make("new", [came, *kept])
    found = compare_sets(old, new)
    assert [count(found, kind, "route") for kind in ("added", "removed", "kept")] == [1, 1, len(kept)]
    assert {row["source"] for row in found["records"]} == {"world"} and not found["moved"]
    back = compare_sets(new, old)
    assert [(r["task"], r["added"], r["removed"]) for r in found["records"]] == [
        (r["task"], r["removed"], r["added"]) for r in back["records"]
    ]
    assert {name: values[::-1] for name, values in found["manifest"].items()} == back["manifest"]


def test_fields_of_the_manifest_that_differ_are_named(make: Make, world: list[dict[str, Any]]) -> None:
    old, new = make("old", world), make("new", world, tasks={"relevance": {"per_question": 2}})
    assert compare_sets(old, new)["manifest"] == {
        "config.tasks.relevance.per_question": [None, 2],
        "config.tasks.relevance.share": [None, 1.0],
    }


def test_a_question_in_another_split_is_a_warning_under_any_id(make: Make, world: list[dict[str, Any]]) -> None:
    train = [row for row in world if row["split"] == "train"][:3]
    by_id, by_text = {**train[0], "split": "dev"}, {**train[1], "id": "new", "split": "test"}
    moved = [by_id, by_text, train[2], *(row for row in world if row not in train)]
    old, new = make("old", world), make("new", moved)
    found = compare_sets(old, new)
    assert found["moved"] == {"train → dev": 1, "train → test": 1}
    shown = {f"train → dev: {train[0]['question']}", f"train → test: {train[1]['question']}"}
    assert set(found["moved_questions"]) == shown
    ran = run(old, new)
    said = " ".join(ran.stdout.split())
    assert ran.exit_code == 1
    assert "warning: questions stand in another split than before: train → dev 1, train → test 1" in said


def test_the_command_prints_tables_or_json_and_ends_as_diff_does(make: Make, world: list[dict[str, Any]]) -> None:
    old, new = make("old", world), make("new", world[:-4], seed=14)
    ran = run(old, new)
    assert ran.exit_code == 1
    for part in ("records", "seed", "13", "14", "removed"):
        assert part in ran.stdout
    machine = run(old, new, "--json")
    assert machine.exit_code == 1 and json.loads(machine.stdout)["manifest"]["config.seed"] == [13, 14]
    trouble = run(old, old.parent)
    assert isinstance(trouble.exception, ArtifactError) and trouble.exception.exit_status == 2
    assert run(old, new, "--split", "dev").exit_code == 2


def test_control_characters_of_the_data_are_shown_and_never_obeyed(make: Make, world: list[dict[str, Any]]) -> None:
    hostile = [row | {"id": f"{row['id']}\x1b]0;owned\x07", "question": "\x1b[2J" + row["question"]} for row in world]
    moved = [row | {"split": {"train": "dev"}.get(row["split"], "train")} for row in hostile]
    old, new = make("old", hostile), make("new", moved, name="\x1b]0;owned\x07")
    looked = CliRunner().invoke(revelator, ["data", "inspect", str(new)])
    for ran in (looked, run(old, new)):
        assert "·[2J" in ran.stdout and "·]0;owned·" in ran.stdout
        assert all(line.isprintable() for line in ran.stdout.splitlines())
