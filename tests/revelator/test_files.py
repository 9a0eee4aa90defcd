"""Files and folders that are whole or absent, lines that survive a kill, locks."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from revelator import files
from revelator.errors import ConfigError
from revelator.files import append_lines, hold_lock, lock_work_folder, read_lines, replace_file, try_lock

HOLD = """
import sys
from pathlib import Path
from revelator.files import lock_work_folder
with lock_work_folder(Path(sys.argv[1]), {"of": 1}, "*.part", "building this") as folder:
    (folder / "1.part").touch()
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_replaced_whole_and_leaves_nothing_aside(tmp_path):
    path = tmp_path / "deep" / "a.json"
    files.write_json(path, {"b": 1, "a": "é"})
    files.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    files.write_bytes(path, b"old")
    with pytest.raises(TypeError):
        files.write_bytes(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_staged_folder_takes_the_place_of_the_old_one(tmp_path):
    target = tmp_path / "set"
    for content in ("one", "two"):
        with files.stage_folder(target) as stage:
            (stage / "sub").mkdir()
            (stage / "sub" / content).write_text(content)
    assert [p.name for p in target.rglob("*")] == ["sub", "two"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_staged_folder_at_a_link_takes_the_place_of_what_the_link_leads_to(tmp_path):
    target, link = tmp_path / "out", tmp_path / "link"
    target.mkdir()
    (target / "old").write_text("old")
    link.symlink_to(target)
    with files.stage_folder(link) as stage:
        (stage / "new").write_text("new")
    assert link.is_symlink()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (".", str(tmp_path)):
        with pytest.raises(ConfigError, match="current folder"), files.stage_folder(Path(given)):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_staged_folder_that_fails_leaves_what_was_there(tmp_path):
    target = tmp_path / "set"
    with files.stage_folder(target) as stage:
        (stage / "a").write_text("old")
    with pytest.raises(RuntimeError), files.stage_folder(target) as stage:
        (stage / "a").write_text("new")
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_killed_process_leaves_no_target_and_its_stage_goes_with_the_next_run(tmp_path):
    code = (
        "import sys, pathlib; from revelator.files import stage_folder\n"
        "with stage_folder(pathlib.Path(sys.argv[1])) as s:\n"
        "    (s / 'a').write_text('half'); print('staged', flush=True); sys.stdin.read()"
    )
    target = tmp_path / "set"
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"staged\n"
    (living,) = tmp_path.iterdir()
    with pytest.raises(RuntimeError), files.stage_folder(target):
        assert living.is_dir()
        raise RuntimeError
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not target.exists() and living.is_dir()
    with files.stage_folder(target):
        assert not living.exists()
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_kill_between_the_two_renames_left_aside_comes_back(tmp_path):
    code = (
        "import os, pathlib, sys; from revelator import files\n"
        "target = pathlib.Path(sys.argv[1])\n"
        "with files.stage_folder(target) as stage:\n"
        "    (stage / 'a').write_text('new')\n"
        "    target.rename(stage.with_name(stage.name.replace('.staging-', '.old-')))\n"
        "    os.kill(os.getpid(), 9)"
    )
    target = tmp_path / "set"
    with files.stage_folder(target) as stage:
        (stage / "a").write_text("old")
    subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert not target.exists()
    with pytest.raises(RuntimeError), files.stage_folder(target):
        raise RuntimeError
    assert (target / "a").read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_kill_after_the_folder_took_its_place_leaves_the_new_one_and_the_next_run_clears_the_old_one(tmp_path):
    code = (
        "import os, pathlib, sys; from revelator import files\n"
        "files.sync_folder = lambda folder: folder.name != 'here' or os.kill(os.getpid(), 9)\n"
        "with files.stage_folder(pathlib.Path(sys.argv[1])) as stage:\n"
        "    (stage / 'a').write_text('new')"
    )
    target = tmp_path / "here" / "set"
    with files.stage_folder(target) as stage:
        (stage / "a").write_text("old")
    killed = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (target / "a").read_text() == "new" and len(list(target.parent.iterdir())) == 2
    with pytest.raises(RuntimeError), files.stage_folder(target):
        raise RuntimeError
    assert (target / "a").read_text() == "new" and list(target.parent.iterdir()) == [target]


def test_a_folder_that_is_replaced_is_at_no_moment_missing(tmp_path):
    code = (
        "import pathlib, sys; from revelator import files\n"
        "for n in range(100):\n"
        "    with files.stage_folder(pathlib.Path(sys.argv[1])) as stage:\n"
        "        (stage / 'a').write_text('new')"
    )
    target, looks = tmp_path / "set", 0
    with files.stage_folder(target) as stage:
        (stage / "a").write_text("old")
    process = subprocess.Popen([sys.executable, "-c", code, str(target)])
    while process.poll() is None:
        assert (target / "a").exists()
        looks += 1
    assert process.returncode == 0 and looks > 100


def test_where_names_cannot_be_exchanged_the_old_folder_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "RENAME_EXCHANGE", 1 << 20)  # a flag that no system knows
    for content in ("old", "new"):
        with files.stage_folder(tmp_path / "set") as stage:
            (stage / "a").write_text(content)
    assert (tmp_path / "set" / "a").read_text() == "new" and list(tmp_path.iterdir()) == [tmp_path / "set"]


def test_digests_are_sha256_by_relative_path(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_text("x")
    (tmp_path / "a").write_text("y")
    digest = hashlib.sha256(b"x").hexdigest()
    assert files.sha256_folder(tmp_path, leave_out=frozenset({"a"})) == {"b/c": digest}
    assert files.sha256_text("x") == files.sha256_file(tmp_path / "b" / "c") == digest


def test_a_folder_can_be_staged_inside_another_stage(tmp_path):
    with files.stage_folder(tmp_path / "outer") as outer, files.stage_folder(outer / "inner") as inner:
        (inner / "file").write_text("x")
    assert (tmp_path / "outer" / "inner" / "file").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["outer"]


def work(target: Path, plan: dict):
    return lock_work_folder(target, plan, "*.part", "building this")


def test_a_build_that_is_killed_gives_its_folder_up_and_leaves_its_parts_to_the_same_plan_alone(tmp_path: Path) -> None:
    target = tmp_path / "set"
    command = [sys.executable, "-c", HOLD, str(target)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with (
        pytest.raises(ConfigError, match=f"another process .{process.pid}. is building this") as refused,
        work(target, {"of": 1}),
    ):
        pass
    assert refused.value.where == str(target) and refused.value.hint
    process.kill()
    process.communicate()
    with pytest.raises(KeyboardInterrupt), work(target, {"of": 1}) as folder:
        assert [path.name for path in folder.glob("*.part")] == ["1.part"]
        raise KeyboardInterrupt
    with work(target, {"of": 2}) as folder:
        assert not list(folder.glob("*.part"))
    assert list(tmp_path.iterdir()) == []


def test_a_hold_leaves_nothing_and_is_refused_on_a_file_that_its_holder_took_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".lock"
    for _ in range(2):
        with hold_lock(lock, "writing", tmp_path):
            assert list(tmp_path.iterdir()) == [lock]
        assert list(tmp_path.iterdir()) == []

    # the other process ends its hold between our opening the file and locking it
    monkeypatch.setattr("fcntl.flock", lambda *_: lock.unlink())
    with pytest.raises(ConfigError, match="until now"), hold_lock(lock, "writing", tmp_path):
        pass


def test_a_file_that_is_being_replaced_stays_whole_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with replace_file(path) as file:
        file.write(b"one")
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), replace_file(path) as file:
        file.write(b"two")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"one" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("torn", "lines"),
    [(b"", []), (b'{"a', []), (b"1\n", [b"1"]), (b"1\n2", [b"1"]), (b"1\n2\n\xe2\x82", [b"1", b"2"])],
)
def test_a_torn_last_line_is_dropped_and_the_next_one_does_not_continue_it(
    torn: bytes, lines: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    assert read_lines(path) == []
    path.parent.mkdir()
    path.write_bytes(torn)
    assert read_lines(path) == lines and path.read_bytes() == torn, "another process may be writing the rest"
    append_lines(path, ["x", "y"])
    assert read_lines(path) == [*lines, b"x", b"y"]


def test_lines_that_processes_append_at_once_are_all_whole_while_they_are_read(tmp_path: Path) -> None:
    path, line = tmp_path / "rows.jsonl", "x" * 5_000
    append_lines(path, [line])
    code = "import sys; from pathlib import Path; from revelator.files import append_lines\n"
    code += f"for _ in range(50): append_lines(Path({str(path)!r}), ['x' * 5_000] * 3)"
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    while any(writer.poll() is None for writer in writers):
        assert set(read_lines(path)) == {line.encode()}
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(read_lines(path)) == 1 + 3 * 50 * 3


def test_a_lock_is_taken_once_or_shared_by_many(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with try_lock(path, shared=True) as first, try_lock(path, shared=True) as second, try_lock(path) as alone:
        assert (first, second, alone) == (True, True, False)
    with try_lock(path) as first, try_lock(path) as second, try_lock(path, shared=True) as third:
        assert (first, second, third) == (True, False, False)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"), try_lock(tmp_path / "file" / "lock"):
        pass
