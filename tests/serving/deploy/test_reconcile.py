"""A replica that follows an alias: converges, does nothing twice, waits longer after each failure, and takes hints."""

from __future__ import annotations

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
    MOST_BYTES,
    OLDEST_SECONDS,
    SECRET,
    Metrics,
    Reconciler,
    compute_wait,
    is_genuine,
    serve_hints,
    sign,
)
from serving.models import releases
from tests.serving.deploy.test_deploy import is_whole

NAME = "followed"
WAIT = 60.0


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_waits_grow_to_five_minutes_and_are_never_half_as_long(failures, drawn):
    whole = min(LONGEST_WAIT, 2.0 ** (failures - 1))
    assert whole / 2 <= compute_wait(failures, lambda: drawn) <= whole


BODY = b'{"entity": "model_version_alias"}'


def headers(secret: str = "s", delivery: str = "1", timestamp: str = "1000", body: bytes = BODY) -> dict[str, str]:
    signed = sign(secret, delivery, timestamp, body)
    return {"X-MLflow-Delivery-Id": delivery, "X-MLflow-Timestamp": timestamp, "X-MLflow-Signature": signed}


def test_a_delivery_counts_when_id_time_and_body_are_those_that_were_signed_lately():
    genuine = headers()
    assert is_genuine("s", genuine, BODY, 1000.0)
    assert not is_genuine("t", genuine, BODY, 1000.0)
    assert not is_genuine("s", genuine, BODY + b" ", 1000.0)
    assert not is_genuine("s", genuine, BODY, 1001.0 + OLDEST_SECONDS)
    assert not is_genuine("s", {**genuine, "X-MLflow-Timestamp": "1001"}, BODY, 1000.0)
    assert not is_genuine("s", {**genuine, "X-MLflow-Timestamp": "²"}, BODY, 1000.0)
    assert not is_genuine("s", {}, BODY, 1000.0)


def post(url: str, body: bytes, sent: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, sent), timeout=WAIT) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_endpoint_refuses_what_is_not_signed_or_too_long_and_counts_it(monkeypatch):
    monkeypatch.setenv(SECRET, "s")
    hint = threading.Event()
    with serve_hints(0, hint, Metrics()) as url:
        assert post(f"{url}/hint", BODY, headers("wrong", timestamp=str(int(time.time())))) == 403
        assert post(f"{url}/hint", b" " * (MOST_BYTES + 1), {}) == 400
        assert post(f"{url}/metrics", BODY, {}) == 405
        assert not hint.is_set()
        assert post(f"{url}/hint", BODY, headers(timestamp=str(int(time.time())))) == 204
        assert hint.is_set()
        exposed = urllib.request.urlopen(f"{url}/metrics", timeout=WAIT).read().decode()
    assert 'revelator_deploy_hints_total{outcome="refused"} 1.0' in exposed
    assert 'revelator_deploy_hints_total{outcome="accepted"} 1.0' in exposed
    monkeypatch.delenv(SECRET)
    with serve_hints(0, hint, Metrics()) as url:
        assert post(f"{url}/hint", BODY, headers("", timestamp=str(int(time.time())))) == 403


@pytest.fixture
def followed(tracking_server: str, registered: Path, tmp_path: Path) -> Reconciler:
    """Of a home folder without a server, at a tracking server whose alias `champion` names version 1 of 2."""
    registry.connect(tracking_server, tmp_path)
    for seed in ("1", "2"):
        registry.register_adapter(registered / "adapters" / seed, NAME)
    registry.client().set_registered_model_alias(NAME, "champion", "1")
    return Reconciler(tmp_path, NAME, "champion", 3, tracking_server)


def value(reconciler: Reconciler, name: str) -> float | None:
    return reconciler.metrics.registry.get_sample_value(f"revelator_deploy_{name}")


def test_a_look_deploys_what_the_alias_names_once_and_finishes_what_a_killed_one_left(followed, tracking_server):
    made = followed.reconcile()
    assert made is not None and made.version == 1 and (value(followed, "live_version"), made.previous) == (1, None)
    files = {path: path.stat().st_mtime_ns for path in followed.home.rglob("*")}
    assert followed.reconcile() is None
    assert {path: path.stat().st_mtime_ns for path in followed.home.rglob("*")} == files
    again = Reconciler(followed.home, NAME, "champion", 3, tracking_server)  # a new process goes through it once more
    assert again.reconcile() == made and again.reconcile() is None
    promotions.move(NAME, 2, promotions.read_standing(NAME))
    moved = followed.reconcile()
    assert moved is not None and (moved.version, moved.previous) == (2, 1)
    assert value(followed, "desired_version") == value(followed, "live_version") == 2


@contextmanager
def following(reconciler: Reconciler, hint: threading.Event, interval: float) -> Iterator[list[str]]:
    """What the loop reports while the block runs."""
    stop, said = threading.Event(), []
    loop = threading.Thread(target=reconciler.follow, args=(stop, hint, interval, said.append))
    loop.start()
    try:
        yield said
    finally:
        stop.set()
        hint.set()
        loop.join()


def until(is_so) -> None:
    end = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.02)


@contextmanager
def watching(reconciler: Reconciler, tracking_server: str) -> Iterator[subprocess.Popen[str]]:
    """`revelator model deploy --watch` as a program of its own, from its first line on; killed when the block ends."""
    options = {"--name": NAME, "--home": reconciler.home, "--tracking-uri": tracking_server, "--interval": "0.1"}
    command = [sys.executable, "-u", "-c", "from revelator.cli import main; main()", "model", "deploy", "--watch"]
    command += [str(part) for option in options.items() for part in option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("follows champion")
        yield process
        process.kill()


def test_a_watch_that_is_killed_at_any_moment_is_taken_up_by_the_next(followed, tracking_server):
    moments = random.Random(3)
    for version in ("2", "1", "2"):
        registry.client().set_registered_model_alias(NAME, "champion", version)
        with watching(followed, tracking_server):
            time.sleep(moments.uniform(0, 0.6))  # into a deploy of half a second
        assert all(is_whole(folder) for folder in (followed.home / "model_repo" / "revelator").glob("[0-9]*"))
    with watching(followed, tracking_server) as process:
        assert process.stdout
        assert "version 2 of followed takes the traffic" in process.stdout.readline()
    promoted = releases.read_release(followed.home)
    assert promoted is not None and promoted.version == 2


def test_mlflows_own_webhook_wakes_the_loop_when_the_alias_moves(followed, monkeypatch):
    monkeypatch.setenv(SECRET, "shared between MLflow and the replica")
    hint = threading.Event()
    with serve_hints(0, hint, followed.metrics) as url, following(followed, hint, interval=3600):
        until(lambda: value(followed, "in_sync") == 1)
        store = registry.client()
        events, secret = ["model_version_alias.created"], "shared between MLflow and the replica"
        webhook = store.create_webhook("replica", f"{url}/hint", events, secret=secret)
        try:
            registry.client().set_registered_model_alias(NAME, "champion", "2")
            until(lambda: (found := releases.read_release(followed.home)) is not None and found.version == 2)
        finally:
            store.delete_webhook(webhook.webhook_id)
    assert followed.metrics.registry.get_sample_value("revelator_deploy_hints_total", {"outcome": "accepted"}) >= 1


def test_a_registry_that_is_away_is_waited_for_and_shows_in_the_metrics(tmp_path):
    reconciler = Reconciler(tmp_path, NAME, "champion", 3, "http://127.0.0.1:1")
    hint = threading.Event()
    with following(reconciler, hint, interval=3600) as said:
        until(lambda: value(reconciler, "consecutive_failures") == 1)
        hint.set()  # instead of the wait
        until(lambda: value(reconciler, "consecutive_failures") == 2)
    assert value(reconciler, "in_sync") == 0 and 0 < value(reconciler, "wait_seconds") <= 2
    failed = reconciler.metrics.registry.get_sample_value("revelator_deploy_failures_total", {"error": "Unavailable"})
    assert failed is not None and failed >= 2
    assert "127.0.0.1:1" in said[0] and "tried again in" in said[0]
    with pytest.raises(Unavailable):
        reconciler.reconcile()
