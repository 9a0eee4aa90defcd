"""Deploys to a running service, to and fro between two versions, killed with -9 at moments that cover a whole deploy.

    python tests/serving/deploy/kill_deploys.py HOME KILLS SEED SECONDS

After each kill the live repository must hold whole version folders only and the promoted version must be ready; then
the same deploy is run again and must finish. Prints a line of JSON a kill: moment and duration of a whole deploy in
seconds, the last step that was reported, and the version that is promoted. Deploys are forks of a process that has
imported everything, so a moment falls into the work and not into the imports. Of KILLS equal parts of a deploy each has
one kill, at a random moment of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import mlflow.store.model_registry.sqlalchemy_store
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401  once, not in each fork

from revelator import registry
from revelator.artifact import verify_files
from revelator.files import sha256_folder
from serving.deploy.deploy import deploy
from serving.home.running import find_running_server
from serving.home.versions import ADAPTER, list_versions, read_contents, version_folder
from serving.models import releases
from serving.service import control

SECONDS = 240  # for a deploy to end by itself


def begin(home: Path, version: int) -> int:
    """The process id of a deploy that has begun; it notes its steps in `home`/step."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        registry.connect(home)
        deploy(home, registry.resolve(registry.NAME, version), report=(home / "step").write_text)
        status = 0
    finally:
        os._exit(status)


def wait(child: int, seconds: float) -> int | None:
    """The exit status, negative for a signal; None when it runs on."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def finish(home: Path, version: int) -> float:
    """Runs a deploy to its end; the seconds that it took."""
    began = time.monotonic()
    status = wait(begin(home, version), SECONDS)
    assert status == 0, f"the deploy of version {version} ended with {status}"
    promoted = releases.read_release(home)
    assert promoted is not None and promoted.version == version
    check(home)
    return time.monotonic() - began


def check(home: Path) -> int:
    """The promoted version, once it is ready and every version folder is whole."""
    for number in list_versions(home):
        contents = read_contents(version_folder(home, number))
        assert contents is not None, f"folder {number} has no version.json"
        adapter = version_folder(home, number) / ADAPTER
        verify_files(adapter)
        assert sha256_folder(adapter) == contents.files
    promoted, running = releases.read_release(home), find_running_server(home)
    assert promoted is not None and running is not None
    child = os.fork()  # a process that has spoken gRPC cannot be forked again
    if child == 0:
        os._exit(not control.is_ready(running.grpc, promoted.version))
    assert wait(child, SECONDS) == 0, f"version {promoted.version} is promoted and not ready"
    return promoted.version


def main(home: Path, kills: int, seed: int, seconds: float) -> None:
    """Ends after `kills`, or with the one under way when `seconds` have passed."""
    end = time.monotonic() + seconds
    draw = random.Random(seed)
    finish(home, 1)
    took = finish(home, 2)
    killed, target = 0, 2
    while killed < kills and time.monotonic() < end:
        target = 3 - target
        moment, began = draw.uniform(killed, killed + 1) / kills * took, time.monotonic()
        child = begin(home, target)
        status = wait(child, moment)
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
        else:
            took = time.monotonic() - began  # it was sooner: the kill comes at a moment of this time
        assert status in (None, 0), f"the deploy ended with {status}"
        step, version = (home / "step").read_text(), check(home)
        print(json.dumps({"moment": moment, "of": took, "killed": status is None, "step": step, "promoted": version}))
        sys.stdout.flush()
        finish(home, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
