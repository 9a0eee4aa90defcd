"""How the endpoint teacher spends its time: waits between attempts, calls at once, and what its progress bar shows."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from data_gen.teacher.client import LONGEST_WAIT, Budget, Cache, Client
from data_gen.teacher.config import BudgetConfig, EndpointConfig
from revelator.cli import revelator
from revelator.errors import Unavailable
from tests.chat_server import Handler, Reply, Server, cuts, running, says
from tests.data_gen.toy_teacher import Teacher, planner, teaching

ROOT = Path(__file__).parents[2]
JITTER = (0.75, 1.25)
PATIENCE = 60  # seconds until a call that does not come fails the test
HALF = r"questions 3/6 \d+\.\d/s \d+:\d\d:\d\d \d+:\d\d:\d\d\s+"  # rate, elapsed time, remaining time
HALF += r"kept 3  calls 6 \(\+0 known, 0 retries\)  tokens 228"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Clock:
    """Sleeps no time; `waits` are the seconds that were asked for, `after` how many requests had come by then."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.waits: list[float] = []
        self.after: list[int] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.after.append(len(self.server.requests))


async def asked(server: Server, folder: Path, clock: Clock, retries: int, backoff: float = 0.5) -> str:
    config = EndpointConfig(url=server.url, model="m", retries=retries, backoff=backoff)
    client = Client(config, Cache(folder / "calls.sqlite"), Budget(BudgetConfig()), 100, sleep=clock.sleep)
    try:
        return (await client.ask([{"role": "user", "content": "Who?"}], 0.0, seed=0)).text
    finally:
        await client.close()


def answers(status: int, **headers: str) -> Reply:
    return lambda handler: handler.send(status, b"{}", **headers)


async def test_each_wait_is_twice_the_one_before_up_to_the_longest_with_jitter(server: Server, tmp_path: Path) -> None:
    faults = [answers(500), cuts, answers(429), answers(200), answers(503), answers(408), answers(500), answers(500)]
    clock, server.replies = Clock(server), [*faults, says("Ada Quill")]
    assert await asked(server, tmp_path, clock, retries=8, backoff=0.8) == "Ada Quill"
    planned = [min(0.8 * 2**attempt, LONGEST_WAIT) for attempt in range(8)]
    assert planned[-2:] == [51.2, LONGEST_WAIT]
    for wait, middle in zip(clock.waits, planned, strict=True):
        assert JITTER[0] * middle <= wait <= JITTER[1] * middle
    assert len({wait / middle for wait, middle in zip(clock.waits, planned, strict=True)}) == 8  # not all at once
    assert clock.after == [1, 2, 3, 4, 5, 6, 7, 8]  # one wait before each further attempt


async def test_a_wait_is_what_the_server_asks_for_and_at_most_the_longest(server: Server, tmp_path: Path) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    given = [
        (429, {"Retry_After": "7"}, 7.0),
        (503, {"Retry_After": "2.5"}, 2.5),
        (429, {"Retry_After": "9", "retry_after_ms": "1500"}, 1.5),
        (500, {"Retry_After": "3"}, 3.0),
        (429, {"Retry_After": "3600"}, LONGEST_WAIT),
        (503, {"Retry_After": later}, LONGEST_WAIT),
        (503, {"Retry_After": past}, 0.0),
    ]
    clock = Clock(server)
    server.replies = [*(answers(status, **headers) for status, headers, _ in given), says("Ada Quill")]
    assert await asked(server, tmp_path, clock, retries=len(given)) == "Ada Quill"
    assert clock.waits == [wait for *_, wait in given]


@pytest.mark.parametrize("said", ["soon", "-3", "inf", "nan", "", "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"])
async def test_what_asks_for_no_time_is_waited_for_as_if_nothing_had_been_said(
    server: Server, tmp_path: Path, said: str
) -> None:
    clock, server.replies = Clock(server), [answers(429, Retry_After=said), says("Ada Quill")]
    assert await asked(server, tmp_path, clock, retries=1) == "Ada Quill"
    assert JITTER[0] * 0.5 <= clock.waits[0] <= JITTER[1] * 0.5


async def test_no_wait_follows_the_last_attempt(server: Server, tmp_path: Path) -> None:
    clock, server.replies = Clock(server), [answers(500)]
    with pytest.raises(Unavailable, match="500"):
        await asked(server, tmp_path, clock, retries=3)
    assert (len(clock.waits), len(server.requests)) == (3, 4)


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
    arguments = ["data", "teach", str(tmp_path / "teach.yaml"), "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(revelator, arguments, catch_exceptions=False)
    assert json.loads(result.stdout)["records"]["train"] == 10
    assert (len(server.requests), most, five.broken) == (20, 5, False)


def test_progress_shows_what_is_done_its_rate_and_the_time_that_remains(server: Server, tmp_path: Path) -> None:
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
            read_until(screen, r"questions 6/6 \d+\.\d/s \d+:\d\d:\d\d 0:00:00\s+kept 6  calls 12 ")
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
