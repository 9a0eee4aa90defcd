"""The process that `accelerate launch` starts for `revelator train`: it trains, and ends when its starter does.

    accelerate launch -m training.launched CONFIG.yaml [--resume]

Standard input is a pipe that only the starter holds: when that closes, because the starter stops the training or was
killed in whatever way, the training ends. Unlike a signal on the parent's death it passes through the launcher in
between and cannot come before it is waited for. The last line on standard output is the outcome, one JSON object:
`exit_status` and, when that is 0, the fields of `training.sft.train`. Errors stand on standard error.

Of several processes the first speaks; one that fails does not exit but waits for its starter to end them all: to its
exit torchrun would add a traceback.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import click

from revelator.errors import RevelatorError
from training.config import GrpoConfig, load_config

STOP_SECONDS = 20  # what an orderly end may take, the MLflow run's included, before the process goes at once
INTERRUPTED = 130  # the shell's exit status of a command that Ctrl-C ended


def end_with_starter() -> None:
    """KeyboardInterrupt in the main thread once standard input is closed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores it

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # sys.stdin.read would hold a lock that the interpreter's end wants
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(STOP_SECONDS)
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--resume", is_flag=True)
def main(config: Path, resume: bool) -> None:
    end_with_starter()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # its import warns of a CPU kernel that nothing here uses
    outcome: dict = {"exit_status": 0}
    several, first = "WORLD_SIZE" in os.environ, os.environ.get("RANK", "0") == "0"
    try:
        settings = load_config(config)
        if isinstance(settings, GrpoConfig):
            from training import grpo

            result = grpo.train(settings, resume=resume)
        else:
            from training import sft

            result = sft.train(settings, resume=resume)
        if result is None:  # not process 0 of a distributed run
            return
        outcome |= result
    except RevelatorError as error:
        outcome["exit_status"] = status = error.exit_status
        signal.signal(signal.SIGINT, lambda *_: os._exit(status))
        if not first:
            time.sleep(STOP_SECONDS)  # bad input ends the first process, too: it says so for all
        click.echo(f"error: {error}", err=True)
    except KeyboardInterrupt:
        outcome["exit_status"] = INTERRUPTED
    click.echo(json.dumps(outcome))
    if several and outcome["exit_status"]:
        threading.Event().wait()
    sys.exit(outcome["exit_status"])


if __name__ == "__main__":
    main(standalone_mode=False)
