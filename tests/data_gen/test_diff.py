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
from revelator.errors import DataError

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


def run(*arguments: object) -> Any:
    return CliRunner().invoke(revelator, ["data", "diff", *map(str, arguments)])


def test_two_builds_of_one_configuration_hold_the_same(make: Make, world: list[dict[str, Any]]) -> None:
    old, new = make("old", world), make("new", world)
    assert compare_sets(old, new)["same"]
    ran = run(old, new)
    assert ran.exit_code == 0 and "hold the same" in " ".join(ran.stdout.split())


def test_records_are_counted_by_task_and_source(make: Make, world: list[dict[str, Any]]) -> None:
    came, changed, *_ = [row for row in world if row["route"] == "single"]
    gone = next(row for row in world if row not in (came, changed))
    before = {**changed, "route": "straightforward", "expression": "", "tree": "", "steps": [], "passages": []}
    old = make("old", [before if row is changed else row for row in world if row is not came])
    new = make("new", [row for row in world if row is not gone])
    found = compare_sets(old, new)
    assert found["records"]["task"]["route"] == {"added": 1, "removed": 1, "changed": 1}
    assert found["questions"] == {"added": 1, "removed": 1} and not found["moved"]
    assert {name.partition(".")[0] for name in found["manifest"]} <= {"inputs", "shape", "licence"}
    for kind in ("added", "removed", "changed"):
        by_task = sum(row[kind] for row in found["records"]["task"].values())
        assert by_task == sum(row[kind] for row in found["records"]["source"].values()) > 0


def test_the_difference_the_other_way_round_is_the_inverse(make: Make, world: list[dict[str, Any]]) -> None:
    old, new = make("old", world[:30]), make("new", world[5:], tasks={"relevance": {"per_question": 2}})
    there, back = compare_sets(old, new), compare_sets(new, old)
    for name, rows in there["records"]["task"].items():
        other = back["records"]["task"][name]
        assert (rows["added"], rows["removed"], rows["changed"]) == (other["removed"], other["added"], other["changed"])
    assert {name: values[::-1] for name, values in there["manifest"].items()} == back["manifest"]
    assert {name: values for name, values in there["manifest"].items() if name.startswith("config.")} == {
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
    for part in ("records by task", "seed", "13", "14", "removed", "shape."):
        assert part in ran.stdout
    machine = run(old, new, "--json")
    assert machine.exit_code == 1 and json.loads(machine.stdout)["manifest"]["config.seed"] == [13, 14]
    trouble = run(old, old.parent)
    assert isinstance(trouble.exception, DataError) and trouble.exception.exit_status == 2


def test_control_characters_of_the_data_are_shown_and_never_obeyed(make: Make, world: list[dict[str, Any]]) -> None:
    hostile = [row | {"id": f"{row['id']}\x1b]0;owned\x07", "question": "\x1b[2J" + row["question"]} for row in world]
    moved = [row | {"split": {"train": "dev"}.get(row["split"], "train")} for row in hostile]
    old, new = make("old", hostile), make("new", moved, name="\x1b]0;owned\x07")
    looked = CliRunner().invoke(revelator, ["data", "inspect", str(new)])
    for ran in (looked, run(old, new)):
        assert "·[2J" in ran.stdout and "·]0;owned·" in ran.stdout
        assert all(line.isprintable() for line in ran.stdout.splitlines())
