"""How the endpoint teacher spends its time: calls at once, and what its progress bar shows."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from revelator.cli import revelator
from tests.chat_server import Handler, Server, running
from tests.data_gen.toy_teacher import Teacher, planner, teaching

ROOT = Path(__file__).parents[2]
PATIENCE = 60  # seconds until a call that does not come fails the test
HALF = r"questions 3/6 \d+:\d\d:\d\d \d+:\d\d:\d\d\s+"  # elapsed time, remaining time
HALF += r"kept 3  calls 6 \(\+0 known\)  tokens 228"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def test_as_many_calls_are_under_way_as_concurrency_says_and_never_one_more(server: Server, tmp_path: Path) -> None:
    teacher, lock = Teacher(server, {"translate_bnf": planner}), threading.Lock()
    under_way, most, one_more = 0, 0, threading.Event()
    five = threading.Barrier(5, action=lambda: one_more.wait(0.3), timeout=PATIENCE)  # time for a sixth to come

    def reply(handler: Handler) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
            if under_way > 5:
                one_more.set()
        five.wait()  # no call is answered before five are there
        with lock:
            under_way -= 1
        teacher.reply(handler)

    settings = teaching(server.url, tmp_path, questions=10)  # 20 calls: four times five
    settings["endpoint"] |= {"concurrency": 5, "retries": 0}
    server.replies = [reply]
    (tmp_path / "teach.yaml").write_text(yaml.safe_dump(settings))
    arguments = ["data", "build", str(tmp_path / "teach.yaml"), "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(revelator, arguments, catch_exceptions=False)
    assert json.loads(result.stdout)["records"]["train"] == 10
    assert (len(server.requests), most, five.broken) == (20, 5, False)


def test_progress_shows_what_is_done_and_the_time_that_remains(server: Server, tmp_path: Path) -> None:
    teacher = Teacher(server, {"translate_bnf": planner})
    settings = teaching(server.url, tmp_path)
    settings["endpoint"] |= {"concurrency": 1}
    teacher.hold_from = 6  # two samples each: three of six questions are done
    (tmp_path / "teach.yaml").write_text(yaml.safe_dump(settings))
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "tests.data_gen.teach_main", str(tmp_path / "teach.yaml"), str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=terminal, stdout=subprocess.DEVNULL) as process:
        os.close(terminal)
        try:
            read_until(screen, HALF)
            teacher.hold_from = None
            teacher.release.set()
            read_until(screen, r"questions 6/6 \d+:\d\d:\d\d 0:00:00\s+kept 6  calls 12 ")
            while more_of(screen):
                pass
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            os.close(screen)


def read_until(screen: int, wanted: str) -> None:
    """Reads a terminal until it shows what is wanted. Fails if it ends before."""
    shown = ""
    while not re.search(wanted, shown):
        more = more_of(screen)
        assert more, shown
        shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", more)


def more_of(screen: int) -> str:
    """More of what a terminal shows, "" at its end."""
    try:
        return os.read(screen, 1 << 16).decode(errors="replace")
    except OSError:  # what Linux says once the other side is closed
        return ""
