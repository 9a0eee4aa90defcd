"""Moves of the champion, to and fro between versions, killed with -9 at random moments.

    python tests/revelator/kill_moves.py HOME NAME KILLS SEED

After each kill another process looks: the champion is the version before or the one that was to be, the record of the
moves agrees with the alias, and the next move, and a rollback, succeed. Prints a line of JSON a kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlflow.store.model_registry.sqlalchemy_store
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401  once, not in each fork

from revelator import promotions, registry


def begin(home: Path, work: Callable[[], object]) -> int:
    """The process id of a fork that has begun `work` on the registry of `home`."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        registry.connect(home)
        work()
        status = 0
    finally:
        os._exit(status)


def ended(child: int, seconds: float) -> int | None:
    """The exit status; None where it was killed, for it was not at its end after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def move(name: str, version: int, began: Path) -> None:
    seen = promotions.read_standing(name)
    began.touch()  # the moment is drawn from here: what was before only read
    if seen.champion != version:
        promotions.move(name, version, seen)


def check(name: str, before: int, target: int) -> None:
    """In a process of its own, as the next command would be."""
    standing = promotions.read_standing(name)
    champion = registry.find_champion(name)
    assert champion is not None and champion.version == standing.champion, (champion, standing)
    assert standing.champion in (before, target), standing
    assert standing.moves[-1].version == standing.champion, standing.moves
    if standing.champion != target:
        promotions.move(name, target, standing)
    assert promotions.roll_back(name).version == before
    promotions.move(name, target, promotions.read_standing(name))
    again = registry.find_champion(name)
    assert again is not None and again.version == target


def main(home: Path, name: str, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    began = home / "began"
    took, killed, before, target = [0.2], 0, 1, 2
    while killed < kills:
        began.unlink(missing_ok=True)
        child = begin(home, lambda version=target: move(name, version, began))
        while not began.exists():
            time.sleep(0.001)
        moment, start = draw.uniform(0, max(took)), time.monotonic()
        status = ended(child, moment)
        assert status in (None, 0), f"the move ended with {status}"
        if status is None:
            killed += 1
            print(json.dumps({"moment": moment, "of": max(took)}), flush=True)
        else:
            took = [time.monotonic() - start]
        assert ended(begin(home, lambda: check(name, before, target)), 120) == 0  # noqa: B023  it runs at once
        before, target = target, before


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
