"""An index that is added to, synchronised and cut short, and files that change meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.progress import Progress, TaskID

from revelator.errors import ConfigError, DataError
from serving.commands.index import update
from serving.retrieval import INDEX, Index, build_index, update_index


class BetweenReadings(Progress):
    """A build reads each file twice, for faults and for passages; this calls `change` in between."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__(disable=True)
        self._change = change

    def add_task(self, description: str, *args: Any, **kwargs: Any) -> TaskID:
        if description == "counting terms":
            self._change()
        return super().add_task(description, *args, **kwargs)


def test_a_file_that_grows_while_it_is_read_moves_no_passage_into_another(library: Path, tmp_path: Path) -> None:
    """Which passages are of which file is known by their number alone."""
    growing = library / "growing.txt"
    growing.write_text("The barn is green.\n")
    progress = BetweenReadings(lambda: growing.write_text("The barn is green.\n\n" * 1_000))
    manifest = build_index([library], tmp_path / "out", progress=progress)
    passages, first = Index.open(tmp_path / "out").passages, 0
    for corpus in manifest["corpora"]:
        stem = corpus["name"].removesuffix(".csv")
        assert all(passages[first + place].id.startswith(stem) for place in range(corpus["passages"]))
        first += corpus["passages"]
    assert first == len(passages) == manifest["count"]


@pytest.mark.parametrize("change", [lambda path: path.write_text("a"), Path.unlink], ids=["shrinks", "goes"])
def test_a_build_over_a_file_that_is_cut_while_it_is_read_fails_and_names_it(
    library: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    cut = library / "cut.txt"
    cut.write_text("The barn is green.\n\n" * 1_000)
    with pytest.raises(DataError, match=r"changed while it was read|cannot be read") as refused:
        build_index([library], tmp_path / "out", progress=BetweenReadings(lambda: change(cut)))
    assert refused.value.where == str(cut) and not (tmp_path / "out").exists()


def test_what_was_added_and_removed_is_as_if_it_had_been_built_so(library: Path, tmp_path: Path) -> None:
    whole, index = tmp_path / "whole", tmp_path / "ix"
    build_index([library], whole)
    build_index([library / "ships", library / "crew.html"], index)
    before = INDEX.read_manifest(index)["files"]
    update_index([library / "log.txt", library / "report.pdf"], index)
    assert [corpus["name"] for corpus in INDEX.read_manifest(index, verify=True)["corpora"]] == [
        "lomvi.md",
        "crew.html",
        "log.txt",
        "report.pdf",
    ]
    assert Index.open(index).search("Friday", 1)[0].id.startswith("log.txt")
    update_index([], index, remove=["log.txt", "report.pdf"])
    assert INDEX.read_manifest(index, verify=True)["files"] == before
    with pytest.raises(DataError, match=r"log\.txt is not in the index"):
        update_index([], index, remove=["log.txt"])


def test_one_update_adds_and_removes(library: Path, tmp_path: Path) -> None:
    build_index([library / "ships", library / "crew.html"], tmp_path / "ix")
    manifest = update_index([library], tmp_path / "ix", remove=["crew.html", "lomvi.md", "report.pdf"])
    assert manifest["version"] == 2
    names = {corpus["name"] for corpus in manifest["corpora"]}
    assert {"log.txt", "ships/lomvi.md"} <= names and not names & {"crew.html", "lomvi.md", "report.pdf"}


def test_an_update_without_a_change_asks_for_one(library: Path, tmp_path: Path) -> None:
    build_index([library], tmp_path / "ix")
    done = CliRunner().invoke(update, [str(tmp_path / "ix")])
    assert done.exit_code == 2 and "--remove NAME" in done.stderr


def test_a_path_from_elsewhere_is_told_the_name_that_its_file_has_in_the_index(library: Path, tmp_path: Path) -> None:
    build_index([library], tmp_path / "ix")
    with pytest.raises(DataError) as error:
        update_index([], tmp_path / "ix", remove=[str(library / "ships" / "lomvi.md")])
    assert error.value.hint is not None and error.value.hint.endswith(": ships/lomvi.md")


def test_a_folder_without_a_document_is_told_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="nothing there can be read") as error:
        build_index([tmp_path / "empty"], tmp_path / "ix")
    assert str(tmp_path / "empty") in str(error.value) and ".md" in str(error.value.hint)


@pytest.mark.parametrize("out", [".", "..", "link"])
def test_an_index_is_not_built_over_the_folder_that_it_reads(library: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "link").symlink_to(library)
    with pytest.raises(DataError, match="would be built over this folder") as error:
        build_index([library], tmp_path / "link" if out == "link" else library / out)
    assert error.value.where == str(library) and "another --out" in str(error.value.hint)
    assert (library / "log.txt").exists()


def test_a_changed_document_replaces_what_it_said(library: Path, tmp_path: Path) -> None:
    build_index([library], tmp_path / "ix")
    opened = Index.open(tmp_path / "ix")
    (library / "log.txt").write_text("On Sunday the ship was sold.")
    update_index([library], tmp_path / "ix")
    assert opened.search("Friday", 1)[0].id.startswith("log.txt")  # who has it open reads it as it was
    index = Index.open(tmp_path / "ix")
    assert index.search("Friday", 1) == []
    assert index.search("Sunday sold", 1)[0].id.startswith("log.txt")
    build_index([library], tmp_path / "fresh")
    assert INDEX.read_manifest(tmp_path / "ix")["files"] == INDEX.read_manifest(tmp_path / "fresh")["files"]


def test_what_is_in_the_index_under_another_name_is_not_added_again(library: Path, tmp_path: Path) -> None:
    before = build_index([library], tmp_path / "ix")
    manifest = update_index([library / "ships"], tmp_path / "ix")
    assert manifest["corpora"] == before["corpora"]
    assert manifest["unread"] == {"lomvi.md": "it is in the index as ships/lomvi.md"}


def test_a_changed_file_that_is_named_otherwise_than_before_is_pointed_at(library: Path, tmp_path: Path) -> None:
    build_index([library], tmp_path / "ix")
    (library / "ships" / "lomvi.md").write_text("# The Lomvi\n\nThe captain is Bo Dahl.")
    done = CliRunner().invoke(update, [str(tmp_path / "ix"), str(library / "ships")])
    assert "note: lomvi.md is new, and ships/lomvi.md stays as it was" in done.stderr


def test_a_sync_removes_what_is_gone_and_takes_up_what_was_renamed(library: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.txt"
    alone.write_text("The yard is closed.")
    build_index([library, alone], tmp_path / "ix")
    (library / "crew.html").rename(library / "people.html")
    (library / "log.txt").unlink()
    alone.unlink()
    kept = update_index([library], tmp_path / "ix")
    assert {"crew.html", "log.txt"} <= {corpus["name"] for corpus in kept["corpora"]}
    synced = {corpus["name"] for corpus in update_index([library], tmp_path / "ix", sync=True)["corpora"]}
    assert not synced & {"crew.html", "log.txt"} and {"people.html", "alone.txt"} <= synced
    assert Index.open(tmp_path / "ix").search("cook", 1)[0].file == "people.html"


def test_a_folder_s_name_removes_all_below_it(library: Path, tmp_path: Path) -> None:
    build_index([library], tmp_path / "ix")
    update_index([], tmp_path / "ix", remove=["ships"])
    assert Index.open(tmp_path / "ix").search("captain", 1) == []


CHANGE = """
import sys
from pathlib import Path
from rich.progress import Progress
from serving.retrieval import update_index, build_index

class Told(Progress):
    def update(self, task, **what):
        super().update(task, **what)
        if self.tasks[task].description == sys.argv[4]:
            print("here", flush=True)
            sys.stdin.read()

options = {"shard_size": 1} if sys.argv[1] == "build" else {}
change = build_index if sys.argv[1] == "build" else update_index
change([Path(sys.argv[2])], Path(sys.argv[3]), progress=Told(disable=True), **options)
"""


@contextmanager
def halting(way: str, path: Path, index: Path, moment: str) -> Iterator[int]:
    """A process that builds an index or adds to it, halted; killed at the end."""
    command = [sys.executable, "-c", CHANGE, way, str(path), str(index), moment]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip() == "here"
    yield process.pid
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("moment", ["counting terms", "merging"])
def test_an_index_that_was_killed_while_it_was_added_to_is_as_before(
    library: Path, tmp_path: Path, moment: str
) -> None:
    index = tmp_path / "ix"
    build_index([library / "ships"], index)
    before = INDEX.read_manifest(index, verify=True)
    with halting("add", library / "log.txt", index, moment):
        pass
    assert INDEX.read_manifest(index, verify=True) == before
    assert Index.open(index).search("captain", 1)
    update_index([library / "log.txt"], index)
    assert Index.open(index).search("Friday", 1)
    assert sorted(path.name for path in tmp_path.iterdir() if "ix" in path.name) == ["ix"]


def test_who_opens_an_index_while_it_changes_opens_one_version_whole(library: Path, tmp_path: Path) -> None:
    index, opened = tmp_path / "ix", set()
    build_index([library / "ships"], index)
    code = (
        "import sys; from pathlib import Path; from serving.retrieval import update_index\n"
        "for n in range(15):\n"
        "    update_index([Path(sys.argv[2])], Path(sys.argv[1]))\n"
        "    update_index([], Path(sys.argv[1]), remove=['log.txt'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(index), str(library / "log.txt")])
    while process.poll() is None:
        found = Index.open(index, verify=True)
        opened.add(found.version)
        assert bool(found.search("Friday", 1)) == (found.version % 2 == 0)
        assert found.passages[len(found) - 1].file == ("log.txt" if found.version % 2 == 0 else "lomvi.md")
    assert process.returncode == 0 and len(opened) > 2


def test_a_killed_build_leaves_nothing_but_its_shards_and_goes_on_from_them(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, work = tmp_path / "ix", tmp_path / ".ix.building"
    with (
        halting("build", library, index, "merging") as process,
        pytest.raises(ConfigError, match=f"another process .{process}. is building this index"),
    ):
        build_index([library], index, shard_size=1)
    assert list(work.glob("*.npz")) and not index.exists()
    whole = build_index([library], tmp_path / "whole", shard_size=1)
    monkeypatch.setattr("serving.retrieval.shard_work.make_shard", None)  # none is written again
    assert build_index([library], index, shard_size=1)["files"] == whole["files"]
    assert INDEX.read_manifest(index, verify=True) and not work.exists()
