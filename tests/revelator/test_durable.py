"""Files and folders that are whole or absent."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from revelator import durable
from revelator.errors import ConfigError


def test_a_file_is_replaced_whole_and_leaves_nothing_aside(tmp_path):
    path = tmp_path / "deep" / "a.json"
    durable.write_json(path, {"b": 1, "a": "é"})
    durable.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    durable.write_bytes(path, b"old")
    with pytest.raises(TypeError):
        durable.write_bytes(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_staged_folder_takes_the_place_of_the_old_one(tmp_path):
    target = tmp_path / "set"
    for content in ("one", "two"):
        with durable.staged_folder(target) as stage:
            (stage / "sub").mkdir()
            (stage / "sub" / content).write_text(content)
    assert [p.name for p in target.rglob("*")] == ["sub", "two"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_staged_folder_at_a_link_takes_the_place_of_what_the_link_leads_to(tmp_path):
    target, link = tmp_path / "out", tmp_path / "link"
    target.mkdir()
    (target / "old").write_text("old")
    link.symlink_to(target)
    with durable.staged_folder(link) as stage:
        (stage / "new").write_text("new")
    assert link.is_symlink()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (".", str(tmp_path)):
        with pytest.raises(ConfigError, match="current folder"), durable.staged_folder(Path(given)):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_staged_folder_that_fails_leaves_what_was_there(tmp_path):
    target = tmp_path / "set"
    with durable.staged_folder(target) as stage:
        (stage / "a").write_text("old")
    with pytest.raises(RuntimeError), durable.staged_folder(target) as stage:
        (stage / "a").write_text("new")
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_killed_process_leaves_no_target_and_its_stage_goes_with_the_next_run(tmp_path):
    code = (
        "import sys, pathlib; from revelator.durable import staged_folder\n"
        "with staged_folder(pathlib.Path(sys.argv[1])) as s:\n"
        "    (s / 'a').write_text('half'); print('staged', flush=True); sys.stdin.read()"
    )
    target = tmp_path / "set"
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"staged\n"
    (living,) = tmp_path.iterdir()
    with pytest.raises(RuntimeError), durable.staged_folder(target):
        assert living.is_dir()
        raise RuntimeError
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not target.exists() and living.is_dir()
    with durable.staged_folder(target):
        assert not living.exists()
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_kill_between_the_two_renames_left_aside_comes_back(tmp_path):
    code = (
        "import os, pathlib, sys; from revelator import durable\n"
        "target = pathlib.Path(sys.argv[1])\n"
        "with durable.staged_folder(target) as stage:\n"
        "    (stage / 'a').write_text('new')\n"
        "    target.rename(stage.with_name(stage.name.replace('.staging-', '.old-')))\n"
        "    os.kill(os.getpid(), 9)"
    )
    target = tmp_path / "set"
    with durable.staged_folder(target) as stage:
        (stage / "a").write_text("old")
    subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert not target.exists()
    with pytest.raises(RuntimeError), durable.staged_folder(target):
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_digests_are_sha256_by_relative_path(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_text("x")
    (tmp_path / "a").write_text("y")
    digest = hashlib.sha256(b"x").hexdigest()
    assert durable.sha256_folder(tmp_path, leave_out=frozenset({"a"})) == {"b/c": digest}
    assert durable.sha256_text("x") == durable.sha256_file(tmp_path / "b" / "c") == digest


def test_a_folder_can_be_staged_inside_another_stage(tmp_path):
    with durable.staged_folder(tmp_path / "outer") as outer, durable.staged_folder(outer / "inner") as inner:
        (inner / "file").write_text("x")
    assert (tmp_path / "outer" / "inner" / "file").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["outer"]
