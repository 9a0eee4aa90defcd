"""Sources on the Hugging Face Hub, read from a server on loopback that speaks its protocol."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from data_gen.sources.formats import READERS
from revelator.rows import SET
from tests.data_gen.read_main import told
from tests.hub_server import Hub, running

ROOT = Path(__file__).parents[2]
ROWS = [{"question": f"who leads orn {n}", "answer": f"Una {n}"} for n in range(20)]
BROKEN = [*map(json.dumps, ROWS[:2]), '{"question": "who leads', json.dumps({"question": "who"}), json.dumps(ROWS[3])]
CARD = "configs: [{config_name: few, data_files: few.jsonl}, {config_name: all, data_files: all.jsonl}]"


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Data sets `owner/plain` with splits in three forms, `owner/subsets` with a card, and `owner/broken`."""
    root = tmp_path_factory.mktemp("hub")
    for name in ("plain", "subsets", "broken"):
        (root / "owner" / name).mkdir(parents=True)
    plain, subsets, broken = (root / "owner" / name for name in ("plain", "subsets", "broken"))
    (plain / "train.jsonl").write_text(lines(ROWS))
    (plain / "validation.jsonl.gz").write_bytes(gzip.compress(lines(ROWS[5:]).encode()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS[9:]), plain / "other.parquet")
    (subsets / "README.md").write_text(f"---\n{CARD}\n---\n")
    (subsets / "few.jsonl").write_text(lines(ROWS[:3]))
    (subsets / "all.jsonl").write_text(lines(ROWS))
    (broken / "train.jsonl").write_text(lines([ROWS[0], {"question": "who leads orn", "answer": None}, ROWS[2]]))
    (broken / "lines.jsonl").write_text("\n".join(BROKEN))
    (broken / "lines.jsonl.gz").write_bytes(gzip.compress("\n".join(BROKEN).encode()))
    with running(root) as hub:
        yield hub


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(hub: Hub, tmp_path: Path) -> Iterator[Start]:
    """Starts a Python module that takes the server for the Hub."""
    started: list[subprocess.Popen[str]] = []

    def _start(*arguments: str) -> subprocess.Popen[str]:
        environment = {**hub.environment(tmp_path / "hub-home"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", *arguments]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **piped))
        return started[-1]

    yield _start
    for process in started:
        process.kill()
        process.communicate()


FILES = {
    "plain?split=train": "plain/train.jsonl",
    "plain?split=validation": "plain/validation.jsonl.gz",
    "plain": "plain/train.jsonl",  # the split is train unless named
    "subsets?subset=few&split=train": "subsets/few.jsonl",
    "subsets?subset=all": "subsets/all.jsonl",
    "plain/train.jsonl": "plain/train.jsonl",
    "plain/validation.jsonl.gz": "plain/validation.jsonl.gz",
    "plain/other.parquet": "plain/other.parquet",
}
BROKEN_FILES = ("broken/lines.jsonl", "broken/lines.jsonl.gz")
ABSENT = ("none?split=train", "plain?split=dev", "plain/none.jsonl")


@pytest.fixture(scope="module")
def found(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What one process reads of every place, in a folder that holds another data set of the same name."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "owner/plain").mkdir(parents=True)
    (folder / "owner/plain/train.jsonl").write_text(lines([{"question": "whose is this", "answer": "mine"}]))
    places = [f"hf://datasets/owner/{place}" for place in (*FILES, *BROKEN_FILES, *ABSENT)]
    command = [sys.executable, "-m", "tests.data_gen.read_main", "pairs", *places]
    environment = {**hub.environment(folder / "hub-home"), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert ran.stdout, ran.stderr
    rows: dict[str, list[dict[str, Any]]] = {}
    for place, row in map(json.loads, ran.stdout.splitlines()):
        rows.setdefault(place.removeprefix("hf://datasets/owner/"), []).append(row)
    return rows


def test_data_sets_and_files_of_the_hub_plain_gzipped_or_parquet_read_as_files_of_ones_own_and_no_folder_of_the_name(
    hub: Hub, found: dict[str, list[dict[str, Any]]]
) -> None:
    own = {place: list(map(told, READERS["pairs"](hub.root / "owner" / name))) for place, name in FILES.items()}
    assert [len(rows) for rows in own.values()] == [20, 15, 20, 3, 20, 20, 15, 11]
    assert {place: found[place] for place in FILES} == own


def test_a_row_of_the_hub_that_cannot_be_read_is_refused_with_place_and_reason(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    for place in BROKEN_FILES:
        rows = found[place]
        assert [row.get("question") for row in rows] == ["who leads orn 0", "who leads orn 1", None, None,
                                                         "who leads orn 3"]  # fmt: skip
        where = f"hf://datasets/owner/{place}"
        assert [(row["file"], row["line"]) for row in rows[2:4]] == [(where, 3), (where, 4)]
        assert rows[2]["reason"].startswith("not JSON")
        assert rows[3]["reason"] == "field 'answer' is missing; there are question"


def test_what_the_hub_does_not_have_is_named(found: dict[str, list[dict[str, Any]]]) -> None:
    for place in ABSENT:
        [error] = found[place]
        assert error["where"] == f"hf://datasets/owner/{place}"
        assert "cannot be read: " in error["error"] and error["hint"]


def test_a_set_is_built_from_the_hub_and_lists_the_row_that_was_refused(start: Start, tmp_path: Path) -> None:
    place = "hf://datasets/owner/broken?split=train"
    sources = [{"format": "pairs", "path": path} for path in ("hf://datasets/owner/plain?split=train", place)]
    (tmp_path / "set.yaml").write_text(yaml.safe_dump({"name": "hub", "split": {"dev": 0.0}, "sources": sources}))
    process = start(
        "revelator", "data", "build", str(tmp_path / "set.yaml"), "--out", str(tmp_path / "set"), "--allow-single"
    )
    said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    manifest = SET.read_manifest(tmp_path / "set", verify=True)
    assert sum(manifest["questions"]["train"].values()) == 20
    [refused] = manifest["refused_rows"]
    assert (refused["file"], refused["line"]) == (place, 2) and "'answer'" in refused["reason"]


@pytest.mark.parametrize("place", ["large?split=train", "large/train.jsonl"])
def test_rows_are_read_while_the_rest_of_the_file_is_still_to_come(hub: Hub, start: Start, place: str) -> None:
    rows = [{**row, "question": f"who leads orn {n}", "note": "x" * 20_000} for n, row in enumerate(ROWS * 60)]
    (hub.root / "owner/large").mkdir(exist_ok=True)
    (hub.root / "owner/large/train.jsonl").write_text(lines(rows))
    hub.released.clear()
    hub.held_from = 18 << 20  # of 24 MB; `datasets` asks for 15 at first
    process = start("tests.data_gen.read_main", "pairs", f"hf://datasets/owner/{place}")
    assert process.stdout
    first = process.stdout.readline()
    hub.released.set()
    assert json.loads(first)[1]["question"] == "who leads orn 0"
    assert 1 + len(process.stdout.readlines()) == len(rows) == 1200
