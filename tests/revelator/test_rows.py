"""The instruction set on disk: what was written is read again, and what was changed since is refused."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import ArtifactError, DataError
from revelator.rows import (
    SET,
    SPLITS,
    make_table,
    read_split,
    sample_rows,
    stream_rows,
    verify_set,
    write_set,
)
from revelator.tasks import TASKS
from tests.training import toy
from tests.training.toy import toy_row, toy_rows


def test_rows_come_back_as_they_were_written_whatever_the_size_of_the_tables(tmp_path: Path) -> None:
    rows = {split: toy_rows(split, 300) for split in SPLITS}  # 3,300 rows: more than one row group
    mixed = [row for split in SPLITS for row in rows[split]]
    for name, size in (("one", len(mixed)), ("many", 700)):
        with write_set(tmp_path / name, {"config": "of the test"}) as writer:
            for start in range(0, len(mixed), size):
                writer.add(make_table(mixed[start : start + size]))
    manifest = verify_set(tmp_path / "one")
    assert manifest["digest"] == SET.read_manifest(tmp_path / "many", verify=True)["digest"]
    assert manifest["config"] == "of the test" and manifest["records"] == dict.fromkeys(SPLITS, 3300)
    assert manifest["counts"]["task"]["dev"] == dict.fromkeys(sorted(TASKS), 300)
    assert sum(manifest["labels"]["route"].values()) == 3 * 300
    for split in SPLITS:
        assert list(stream_rows(tmp_path / "one", split)) == rows[split]
        assert read_split(tmp_path / "one", split, {"end"}) == list(stream_rows(tmp_path / "one", split, "end"))


def test_a_set_without_rows_is_not_written_and_says_what_was_left_out(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"not one record came out of the build\n  held out: 3"),
        write_set(tmp_path / "set", {"dropped": {"held out": 3}}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_row_is_known_without_pyarrow_and_torch() -> None:
    code = "import sys, revelator.rows; sys.exit(bool({'torch', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(seed=st.integers(0, 100), each=st.integers(1, 5))
def test_the_pinned_slice_does_not_depend_on_the_order_of_rows(seed: int, each: int) -> None:
    rows = [toy_row(id=f"{task}-{n}", task=task) for task in ("end", "route") for n in range(9)]
    shuffled = Random(seed).sample(rows, len(rows))
    chosen = sample_rows(rows, each)
    assert sample_rows(shuffled, each) == chosen
    assert Counter(row.task for row in chosen) == {"end": each, "route": each}


def test_a_set_of_other_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="built with other prompts: its prompt hash is 0123"):
        verify_set(toy.write_set(tmp_path / "old", train=1, dev=1, hashed="0123" * 16))


def test_a_changed_file_an_unfinished_set_and_an_empty_split_are_refused(tmp_path: Path) -> None:
    folder = toy.write_set(tmp_path / "set", train=0, dev=1)
    verify_set(folder)
    with pytest.raises(DataError, match=r"train\.parquet: the split is empty"):
        read_split(folder, "train")
    (folder / "dev.parquet").write_bytes(b"changed")
    with pytest.raises(ArtifactError, match=r"dev\.parquet: has changed"):
        verify_set(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="not an instruction set, or one that was not finished"):
        verify_set(folder)
