"""The command `revelator`. Each subcommand lives with its stage and is imported when it is called, so that
`revelator parse` starts without torch, and this package imports nothing of the stages."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Callable

import click

from revelator.errors import RevelatorError

COMMANDS = {
    "parse": "revelator.plans.commands:parse",
    "check": "revelator.plans.commands:check",
    "data": "data_gen.commands:data",
    "train": "training.commands:train",
    "promote": "evaluation.promotion.command:promote",
    "rollback": "evaluation.promotion.command:rollback",
    "merge": "training.merge:merge",
    "grade": "evaluation.commands:grade",
    "evaluate": "evaluation.harness.command:evaluate",
    "score": "evaluation.adapters.score:score",
    "recall": "evaluation.retrieval.command:recall",
    "report": "evaluation.report.command:report",
    "costs": "evaluation.costs.command:costs",
    "index": "serving.commands.index:index",
    "graph": "serving.commands.graph:graph",
    "art": "serving.commands.art:art",
    "deploy": "serving.commands.deploy:deploy",
    "serve": "serving.commands.serve:serve",
    "ask": "serving.commands.ask:ask",
    "inspect": "serving.commands.inspect:inspect",
    "demo": "evaluation.chains.demo:demo",
    "real": "evaluation.chains.real:real",
    "self-train": "evaluation.self_training.command:self_train",
}


TERMINATED = 128 + signal.SIGTERM  # the shell's exit status of a command that SIGTERM ended


class LazyGroup(click.Group):
    """A group whose commands are named in `COMMANDS` and imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        return getattr(importlib.import_module(module), attribute)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="revelator")
def revelator() -> None:
    """One small model compiles a question into a plan; a symbolic executor runs it.

    \b
    Examples:
      revelator parse "Who directed UHF? * When was {director} born?"
      revelator data world --size 2000 --seed 7 --out runs/world
      revelator serve
      revelator ask "Who founded the company that distributed UHF?"
    """


def main() -> None:
    """Entry point."""
    run(revelator)


def run(command: Callable[[], object]) -> None:
    """A command as a program: our own errors print as one clear message, with their exit status.

    A terminal that cannot show a character of a question or a document shows `?` in its place.
    """
    _end_in_order_at_sigterm()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        command()
    except RevelatorError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_status)


def _end_in_order_at_sigterm() -> None:
    """SIGTERM unwinds as Ctrl-C does, so that what was staged is removed; a process forked from this one just ends."""
    own = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() != own:
            os._exit(TERMINATED)
        signal.signal(signal.SIGTERM, lambda *_: None)  # once: a second one would break off the tidying
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
