"""A replica that follows an alias: converges, does nothing twice, and waits longer after each failure."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator import promotions, registry
from revelator.errors import Unavailable
from serving.deploy.watch import (
    LONGEST_WAIT,
    Metrics,
    Reconciler,
    compute_wait,
    serve_metrics,
)
from serving.models import releases
from tests.serving.deploy.test_deploy import is_whole

NAME = "followed"
WAIT = 60.0


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_waits_grow_to_five_minutes_and_are_never_half_as_long(failures, drawn):
    whole = min(LONGEST_WAIT, 2.0 ** (failures - 1))
    assert whole / 2 <= compute_wait(failures, lambda: drawn) <= whole


def test_the_page_of_metrics_is_read_and_takes_nothing():
    with serve_metrics(0, Metrics()) as url:
        assert "revelator_deploy_in_sync" in urllib.request.urlopen(url, timeout=WAIT).read().decode()
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=WAIT)


@pytest.fixture
def followed(tracking_server: str, registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reconciler:
    """Of a home folder without a server, at a tracking server whose alias `champion` names version 1 of 2."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server)
    registry.connect(tmp_path)
    for seed in ("1", "2"):
        registry.register_adapter(registered / "adapters" / seed, NAME)
    registry.open_client().set_registered_model_alias(NAME, "champion", "1")
    return Reconciler(tmp_path, NAME, "champion")


def value(reconciler: Reconciler, name: str) -> float | None:
    return reconciler.metrics.registry.get_sample_value(f"revelator_deploy_{name}")


def test_a_look_deploys_what_the_alias_names_once_and_finishes_what_a_killed_one_left(followed):
    made = followed.reconcile()
    assert made is not None and made.version == 1 and (value(followed, "live_version"), made.previous) == (1, None)
    files = {path: path.stat().st_mtime_ns for path in followed.home.rglob("*")}
    assert followed.reconcile() is None
    assert {path: path.stat().st_mtime_ns for path in followed.home.rglob("*")} == files
    again = Reconciler(followed.home, NAME, "champion")  # a new process goes through it once more
    assert again.reconcile() == made and again.reconcile() is None
    promotions.move(NAME, 2, promotions.read_standing(NAME))
    moved = followed.reconcile()
    assert moved is not None and (moved.version, moved.previous) == (2, 1)
    assert value(followed, "desired_version") == value(followed, "live_version") == 2


@contextmanager
def following(reconciler: Reconciler, interval: float) -> Iterator[list[str]]:
    """What the loop reports while the block runs."""
    stop, said = threading.Event(), []
    loop = threading.Thread(target=reconciler.follow, args=(stop, interval, said.append))
    loop.start()
    try:
        yield said
    finally:
        stop.set()
        loop.join()


def until(is_so) -> None:
    end = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.02)


@contextmanager
def watching(reconciler: Reconciler) -> Iterator[subprocess.Popen[str]]:
    """`revelator model deploy --watch` as a program of its own, from its first line on; killed when the block ends."""
    command = [sys.executable, "-u", "-c", "from revelator.cli import main; main()", "model", "deploy", "--watch"]
    command += ["--home", str(reconciler.home)]
    environment = os.environ | {"REVELATOR_MODEL": NAME}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("follows champion")
        yield process
        process.kill()


def test_a_watch_that_is_killed_at_any_moment_is_taken_up_by_the_next(followed):
    moments = random.Random(3)
    for version in ("1", "2"):
        registry.open_client().set_registered_model_alias(NAME, "champion", version)
        with watching(followed):
            time.sleep(moments.uniform(0, 0.6))  # into a deploy of half a second
        assert all(is_whole(folder) for folder in (followed.home / "model_repo" / "revelator").glob("[0-9]*"))
    with watching(followed) as process:
        assert process.stdout
        assert "version 2 of followed takes the traffic" in process.stdout.readline()
    promoted = releases.read_release(followed.home)
    assert promoted is not None and promoted.version == 2


def test_a_registry_that_is_away_is_waited_for_and_shows_in_the_metrics(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    reconciler = Reconciler(tmp_path, NAME, "champion")
    with following(reconciler, interval=3600) as said:
        until(lambda: value(reconciler, "consecutive_failures") == 2)
    assert value(reconciler, "in_sync") == 0 and 0 < value(reconciler, "wait_seconds") <= 2
    failed = reconciler.metrics.registry.get_sample_value("revelator_deploy_failures_total", {"error": "Unavailable"})
    assert failed is not None and failed >= 2
    assert "127.0.0.1:1" in said[0] and "tried again in" in said[0]
    with pytest.raises(Unavailable):
        reconciler.reconcile()
