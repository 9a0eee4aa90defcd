"""A server for the length of a block: `revelator serve` as a child process that never outlives this one."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evaluation.chains.chain import PROGRAM, WAITING, shown
from revelator.errors import Unavailable

START_SECONDS = 120
STOP_SECONDS = 40
LINES_SHOWN = 15
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


@contextmanager
def local_server(home: Path, arguments: Sequence[str]) -> Iterator[str]:
    """Starts `revelator serve` with `arguments` and yields the gRPC address of the ready server.

    What it says goes to `logs/serve.log` below `home`. It is stopped when the block ends, however it ends, and by the
    kernel when this process is killed. Raises Unavailable with the end of its log when it does not become ready.
    """
    log, ready = home / "logs" / "serve.log", home / "serve.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PROGRAM, *arguments],
            env=os.environ | WAITING,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the server once
            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )
    try:
        yield _wait(process, ready, log, tuple(arguments))
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], ready: Path, log: Path, arguments: tuple[str, ...]) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if (address := _address(ready, process.pid)) is not None:
            return address
        time.sleep(0.1)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])
    raise Unavailable(f"the server did not become ready\n{said}", where=shown(arguments), hint=f"all it said: {log}")


def _address(ready: Path, pid: int) -> str | None:
    try:
        state = json.loads(ready.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return state["grpc"] if state["pid"] == pid else None


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
