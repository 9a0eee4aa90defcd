"""`collect`, killed with -9 at each of its operations on files below the folder of OUT, one after the other.

    python -m tests.data_gen.kill_collect TRACKING_SERVER EXPERIMENT OUT

Prints a line of JSON a try: how it ended, and how many questions OUT holds then (null: there is no OUT). It stops after
the first try that was not killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import mlflow.tracking  # noqa: F401  once, not in each fork

from data_gen.collect import CollectConfig, collect
from revelator import registry
from revelator.files import sha256_file


def begin(number: int, server: str, experiment: str, out: Path) -> int:
    """The process id of a fork that collects, and kills itself at its operation `number`."""
    child = os.fork()
    if child:
        return child
    seen = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        is_operation = event == "open" or event.startswith("os.")
        if is_operation and any(str(out.parent) in str(argument) for argument in arguments):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        os.environ[registry.TRACKING_URI] = server
        config = CollectConfig(rows="collected", experiment=experiment, home=str(out.parents[1]))
        sys.addaudithook(look)
        collect(config, out)
    except BaseException as error:
        print(error, file=sys.stderr)
        os._exit(1)
    os._exit(0)


def count_questions(out: Path) -> int | None:
    """What OUT holds. Fails where it is not whole."""
    if not out.exists():
        return None
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert sha256_file(out / "questions.jsonl") == manifest["files"]["questions.jsonl"]
    return int(manifest["questions"])


def main(server: str, experiment: str, out: Path) -> None:
    status, number = None, 0
    while status != 0:
        number += 1
        _, ended = os.waitpid(begin(number, server, experiment, out), 0)
        status = os.waitstatus_to_exitcode(ended)
        print(json.dumps({"status": status, "questions": count_questions(out)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
