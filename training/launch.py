"""A training in its own processes: the command's side, which starts them, and theirs, which trains.

    accelerate launch -m training.launch CONFIG.yaml [--resume]

One process without a file of accelerate's starts without the launcher, which would import torch to start nothing else.

Standard input is a pipe that only the starter holds: when that closes, because the starter stops the training or was
killed in whatever way, the training ends. Unlike a signal on the parent's death it passes through a launcher in
between and cannot come before it is waited for. The last line on standard output is the outcome, one JSON object:
`exit_status` and, when that is 0, what the stage's `train` returned. Errors stand on standard error.

Of several processes only the first prints. A process that fails does not exit but waits until its starter ends all of
them, because torchrun would print a traceback when one exits. A process that is stopped exits at once, with 0 and
without an outcome: another may wait for it within a step.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console

from revelator.cli import INTERRUPTED
from revelator.errors import RevelatorError
from revelator.files import write_bytes
from training.config import AnyConfig, load_config, resolve_accelerate_file

STOP_SECONDS = 20  # what an orderly end may take, the MLflow run's included, before the process goes at once


def launch(settings: AnyConfig, resume: bool, home: Path) -> dict:
    """Runs the training in its own processes and returns its outcome, which is empty if it ended without one."""
    console = Console(stderr=True)
    resolved = settings.work / "config.yaml"
    write_bytes(resolved, settings.to_yaml().encode())
    console.print(
        f"[bold]resolved configuration[/] ({resolved})\n{settings.to_yaml()}", highlight=False, soft_wrap=True
    )
    environment = _make_environment(home)
    command = [sys.executable]
    if settings.processes > 1 or settings.accelerate:
        command += ["-m", "accelerate.commands.launch", *make_launch_arguments(settings)]
    else:
        environment["OMP_NUM_THREADS"] = _count_threads(settings)
    command += ["-m", "training.launch", str(resolved), *["--resume"] * resume]
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,  # closed when this process ends, however it ends: see the head of this module
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C reaches this process alone
    )
    assert process.stdin and process.stdout
    outcome: dict = {}
    try:
        outcome = _read_outcome(process.stdout)
    except KeyboardInterrupt:
        console.print("\nstopping …", highlight=False)
        process.stdin.close()
        outcome = _read_outcome(process.stdout) or {"exit_status": INTERRUPTED}
    except SystemExit:  # SIGTERM: see revelator.cli
        process.stdin.close()
        raise
    finally:
        waiting = settings.processes > 1 and outcome.get("exit_status")  # for us
        _end_process(process, 0 if waiting else STOP_SECONDS)
    return outcome


def _make_environment(home: Path) -> dict[str, str]:
    environment = os.environ | {"REVELATOR_HOME": str(home), "TOKENIZERS_PARALLELISM": "false"}
    environment.setdefault("PYTHONWARNINGS", "ignore::FutureWarning,ignore::UserWarning")
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait take cores from others
    # glibc keeps what a tensor leaves for the next one. Given back to the kernel and asked for again page by page, it
    # costs half of the processor's time: a step of the reader took 3.4 s, and takes 2.1 s (6.8 GB where it was 4.6).
    # oneDNN keeps what it makes ready for each shape, and steps by tokens have many: after 300 of SmolLM2-135M in bf16
    # 11.5 GB were taken, and with few kept 5, at the same speed.
    environment.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8")
    environment.setdefault("MALLOC_MMAP_MAX_", "0")
    environment.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**34))
    return environment


def _read_outcome(lines: Iterable[str]) -> dict:
    """Reads the line that is JSON, and prints the other lines, which come from libraries, to standard error."""
    for line in lines:
        if line.startswith('{"exit_status"'):
            return json.loads(line)
        click.echo(line, err=True, nl=False)
    return {}


def _end_process(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def make_launch_arguments(settings: AnyConfig) -> list[str]:
    """Makes the arguments of `accelerate launch` for processes, threads and machines."""
    counted = ["--num_processes", str(settings.processes)]
    counted += ["--num_cpu_threads_per_process", _count_threads(settings)]
    if settings.accelerate:
        return ["--config_file", str(resolve_accelerate_file(settings.accelerate)), *counted]
    # on a machine without a GPU: gloo on its CPU
    return [*counted, "--num_machines", "1", "--multi_gpu", "--mixed_precision", "no", "--dynamo_backend", "no"]


def _count_threads(settings: AnyConfig) -> str:
    """Threads of a process: as many as are asked for, by the configuration or else by OMP_NUM_THREADS, else its share
    of the cores."""
    share = max(1, len(os.sched_getaffinity(0)) // settings.processes)
    return str(settings.threads or os.environ.get("OMP_NUM_THREADS") or share)


def watch_starter() -> None:
    """Raises KeyboardInterrupt in the main thread when standard input closes, that is when the starter ends."""
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
    watch_starter()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # its import warns of a CPU kernel that nothing here uses
    outcome: dict = {"exit_status": 0}
    several, first = "WORLD_SIZE" in os.environ, os.environ.get("RANK", "0") == "0"
    try:
        settings = load_config(config)
        if getattr(settings, "quantization", "none") == "none":
            # peft imports it where it is installed, and torch's compiler with it: an eighth of the time to start
            sys.modules["bitsandbytes"] = None  # type: ignore[assignment]
        stage = importlib.import_module(f"training.{settings.stage}")
        result = stage.train(settings, resume=resume)
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
        if several:
            os._exit(0)  # an orderly end of the interpreter may wait for the others, too
        outcome["exit_status"] = INTERRUPTED
    click.echo(json.dumps(outcome))
    if several and outcome["exit_status"]:
        threading.Event().wait()
    sys.exit(outcome["exit_status"])


if __name__ == "__main__":
    main(standalone_mode=False)
