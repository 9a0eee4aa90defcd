"""A build whose disk is full, on a file system of its own: writes fail, and so does what only a memory map fills."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.serving.retrieval.toy_encoder import write_corpus, write_encoder

ROOT = Path(__file__).parents[3]
ALONE = ["unshare", "--map-root-user", "--mount"]  # mounts that no other process sees
pytestmark = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0,
    reason="this system lets nobody mount a file system of his own (unshare --map-root-user --mount)",
)

SCRIPT = """
import contextlib, io, json, os, subprocess, sys
from functools import partial
from revelator.cli import revelator, run
from serving.retrieval.places import open_index, read_address

disk, out, step, small, large, *options = sys.argv[1:]

def build(corpus):
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            run(partial(revelator, ["index", "build", corpus, "--out", out, *options]))
        except SystemExit as ended:
            return {"status": ended.code, "said": said.getvalue()}

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", disk], check=True)
assert build(small)["status"] == 0
files = os.statvfs(disk)
size = (files.f_blocks - files.f_bfree) * files.f_frsize
attempt = {"status": 1}
while attempt["status"]:
    size += int(step)
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
    attempt = build(large)
    index = open_index(read_address(out))
    found = [passage.id for passage in index.search_many(["cat dog"], 3)[0]]
    print(json.dumps({**attempt, "count": len(index), "found": found, "names": sorted(os.listdir(disk))}))
"""


@dataclass(frozen=True)
class Attempt:
    """How a build ended, what it said, and what then stands on the disk: files, and an index of `count` passages."""

    status: int
    said: str
    count: int
    found: list[str]
    names: list[str]


def build_on_a_small_disk(folder: Path, out: str, step: int, *options: str) -> list[Attempt]:
    """Attempts to replace an index of 20 passages by one of 600, each on a disk of `step` more bytes, until one is
    made."""
    corpora = [str(write_corpus(folder / f"{name}.jsonl", count)) for name, count in (("old", 20), ("new", 600))]
    options = ("--kind", "hybrid", "--model", str(write_encoder(folder / "encoder")), *options)
    (folder / "disk").mkdir()
    command = [*ALONE, sys.executable, "-c", SCRIPT, str(folder / "disk"), out, str(step), *corpora, *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [Attempt(**json.loads(line)) for line in ran.stdout.splitlines()]


def list_errors(attempt: Attempt) -> list[str]:
    """What the command said beside its progress."""
    said = attempt.said[attempt.said.index("error: ") :]
    return said.splitlines()


def test_an_index_folder_stays_until_there_is_room_for_the_next(tmp_path: Path) -> None:
    out = str(tmp_path / "disk" / "ix")
    *refused, made = build_on_a_small_disk(tmp_path, out, 64 * 1024, "--faiss", "HNSW32")
    assert len(refused) > 4
    for attempt in refused:
        said, hint = list_errors(attempt)
        assert said.startswith(f"error: {out}: the disk is full or a quota is reached: ") and len(said) < 250
        assert "free space" in hint and attempt.status == 1
        assert attempt.count == 20 and {id.split()[0] for id in attempt.found} == {"old"}
        assert {*attempt.names} <= {"ix", ".ix.building"}
    assert ".ix.building" in refused[-1].names, "the next build goes on from these blocks"
    assert (made.status, made.count, made.names) == (0, 600, ["ix"])


def test_milvus_lite_says_that_it_has_no_room_and_the_build_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
    out = f"milvus:{tmp_path}/disk/m.db/ix"
    *refused, made = build_on_a_small_disk(tmp_path, out, 512 * 1024)
    assert refused
    for attempt in refused:
        said, hint = list_errors(attempt)
        assert said.startswith(f"error: {out}: Milvus has no room: ") and "goes on" in hint and attempt.status == 1
        assert attempt.count == 20, "the manifest is written last: the old one holds"
    assert (made.status, made.count, len(made.found)) == (0, 600, 3)
