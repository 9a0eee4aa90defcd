"""One process writes a folder at a time; a build that was killed leaves its parts to the next one of the same plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from revelator.alone import held, work_folder
from revelator.errors import ConfigError

HOLD = """
import sys
from pathlib import Path
from revelator.alone import work_folder
with work_folder(Path(sys.argv[1]), {"of": 1}, "*.part", "building this") as folder:
    (folder / "1.part").touch()
    print("held", flush=True)
    sys.stdin.read()
"""


def work(target: Path, plan: dict):
    return work_folder(target, plan, "*.part", "building this")


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
        with held(lock, "writing", tmp_path):
            assert list(tmp_path.iterdir()) == [lock]
        assert list(tmp_path.iterdir()) == []

    # the other process ends its hold between our opening the file and locking it
    monkeypatch.setattr("fcntl.flock", lambda *_: lock.unlink())
    with pytest.raises(ConfigError, match="until now"), held(lock, "writing", tmp_path):
        pass
