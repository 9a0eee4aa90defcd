"""Runs a chain of commands that can be resumed.

A step is skipped when the ledger `steps.json` records the same command line, inputs (by sha256) and prompts, and the
file that the step writes last has not changed since. Any other step runs again. Steps are child processes: the chain
prints what a person would type, and torch stays out of this process.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from revelator.errors import RevelatorError
from revelator.files import sha256_file, sha256_text, write_json
from revelator.tasks import prompt_hash

# Threads that spin while they wait take the cores from the others: on two cores that something else uses too, writing
# a plan of 24 tokens took 0.4 to 3.5 s with spinning and 0.35 s without.
PASSIVE_WAIT = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
STOP_SECONDS = 20  # what a command may take to stop before it is killed
PROGRAM = Path(sys.executable).with_name("revelator")


@dataclass(frozen=True)
class Step:
    """One command. `arguments` follow `revelator`.

    `makes` is the file that the step writes last, or None. `needs` are its input files; `digest` stands for any other
    input (the weights of a base, the format of an index). `resume` is added to the arguments after an interruption.
    """

    name: str
    title: str
    arguments: tuple[str, ...]
    makes: Path | None
    needs: tuple[Path, ...] = ()
    resume: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    digest: str = ""


def format_command(arguments: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> str:
    """Returns the line that a person would type."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment), f"revelator {shlex.join(arguments)}"]
    )


def run_group(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command in a process group of its own and returns its exit status. Ctrl-C or SIGTERM here ends the command
    with all its children."""
    process = subprocess.Popen(command, env=environment, process_group=0)
    try:
        return process.wait()
    except BaseException as stop:
        os.killpg(process.pid, signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


class Chain:
    """Runs steps below one home folder. `total` is the number of headings; `resume_command` is what a person types to
    resume the chain."""

    def __init__(self, home: Path, total: int, resume_command: str, console: Console) -> None:
        self.home = home
        self.total = total
        self.resume_command = resume_command
        self.console = console
        self.began = time.monotonic()
        self.number = 0
        self.times: list[tuple[str, float]] = []
        self.ledger_path = home / "steps.json"
        self.ledger = json.loads(self.ledger_path.read_text()) if self.ledger_path.exists() else {}
        home.mkdir(parents=True, exist_ok=True)

    def elapsed(self) -> float:
        """Seconds since the chain began."""
        return time.monotonic() - self.began

    def print_heading(self, title: str) -> None:
        self.number += 1
        since = time.strftime("%M:%S", time.gmtime(self.elapsed()))
        self.console.print(
            f"\n[bold reverse] {self.number}/{self.total} [/] [bold]{title}[/]  [dim]{since}[/]", highlight=False
        )

    def print_command(self, arguments: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> None:
        line = f"$ {format_command(arguments, environment)}"
        self.console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)

    def run(self, step: Step) -> bool:
        """Runs `step` unless it is complete, and returns whether it ran. Raises RevelatorError when its command
        fails."""
        self.print_heading(step.title)
        self.print_command(step.arguments, step.environment)
        key, place = self._key(step), step.makes.parent if step.makes else self.home
        entry = self.ledger.get(step.name, {})
        if entry.get("key") == key and entry["made"] == _digest_file(step.makes):
            self.console.print(
                f"[green]already done[/] (it took {entry['seconds']:.0f} s), reused: {place}", highlight=False
            )
            self.times.append((step.name, 0.0))
            return False
        self._record(step.name, {"begun": key})
        began = time.monotonic()
        self._run_command(step.arguments + (step.resume if entry.get("begun") == key else ()), step.environment)
        if step.makes and not step.makes.exists():
            raise RevelatorError(f"step {self.number} ({step.name}) ended without its result", where=str(step.makes))
        seconds = time.monotonic() - began
        self.times.append((step.name, seconds))
        self._record(step.name, {"key": key, "made": _digest_file(step.makes), "seconds": seconds})
        self.console.print(f"[green]done[/] in {seconds:.0f} s: {place}", highlight=False)
        return True

    def _run_command(self, arguments: Sequence[str], environment: Sequence[tuple[str, str]]) -> None:
        variables = os.environ | {"REVELATOR_HOME": str(self.home)} | PASSIVE_WAIT | dict(environment)
        if status := run_group([str(PROGRAM), *arguments], variables):
            ending = (
                f"failed with exit status {status}" if status > 0 else f"was ended by {signal.Signals(-status).name}"
            )
            raise RevelatorError(
                f"step {self.number} {ending}",
                where=format_command(arguments, environment),
                hint=f"its message above says why; once that is mended, `{self.resume_command}` goes on from this step",
            )

    def _key(self, step: Step) -> str:
        needs = {str(path): sha256_file(path) for path in step.needs}
        return sha256_text(
            json.dumps([step.arguments, step.environment, needs, step.digest, prompt_hash()], sort_keys=True)
        )

    def _record(self, name: str, entry: dict[str, object]) -> None:
        self.ledger[name] = entry
        write_json(self.ledger_path, self.ledger)


def _digest_file(path: Path | None) -> str:
    return sha256_file(path) if path and path.exists() else ""
