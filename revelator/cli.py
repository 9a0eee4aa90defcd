"""The command `revelator`: groups of commands by noun.

A command lives with its stage and is imported when it is called: `revelator plan check` starts without torch, and the
help of a group imports none of its commands. To move a command, change its line in `COMMANDS`.
"""

from __future__ import annotations

import difflib
import errno
import gc
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import click

from revelator.errors import ConfigError, RevelatorError


class Command(NamedTuple):
    """A command that is imported when used. `place` is `module:attribute`, `about` is the question that it answers."""

    place: str
    about: str


class Group(NamedTuple):
    """Commands about one noun; `about` says what they do, `example` is one of them as it is typed."""

    about: str
    example: str
    commands: dict[str, Command | Group]


# fmt: off
COMMANDS: dict[str, Command | Group] = {
    "demo": Command("evaluation.demo:demo", "Walk the whole way, from data to six answers."),
    "doctor": Command("serving.commands.doctor:doctor", "Show what this machine can do, and what is missing."),
    "ask": Command("serving.commands.ask:ask", "Ask a running server: answer, plan and passages."),
    "serve": Command("serving.commands.serve:serve", "Serve the deployed version."),
    "inspect": Command("serving.commands.inspect:inspect", "Watch plans run in a browser, edit and compare them."),
    "mcp": Command("serving.commands.mcp:mcp", "Offer a service's tools to an agent over stdio (MCP)."),
    "index": Group("Make documents and knowledge graphs searchable.",
      "revelator index build handbook/ --out runs/indexes/mine", {
        "build": Command("serving.commands.index:build", "Build a searchable index from documents, or triples."),
        "update": Command("serving.commands.index:update", "Add, read anew or remove documents."),
        "search": Command("serving.commands.index:search", "Search an index."),
        "info": Command("serving.commands.index:info", "Show what an index holds, and whether it is intact."),
        "calibrate": Command("serving.commands.index:calibrate", "Fit how likely a passage with a score is relevant."),
    }),
    "data": Group("Make and check what the model learns from.",
      "revelator data build data_gen/configs/full.yaml --out runs/sets/mine", {
        "fetch": Command("data_gen.commands.fetch:fetch", "Download the published data that configurations read."),
        "build": Command("data_gen.commands.build:build", "Build a set, rows for a reader, a world, or questions."),
        "inspect": Command("data_gen.commands.inspect:inspect", "Show what a set holds, what changed, or what leaked."),
    }),
    "train": Command("training.commands:train", "Train: fine-tune, by rewards, or a base of your own."),
    "model": Group("Grade, promote and deploy versions.",
      "revelator model promote --dry-run", {
        "list": Command("evaluation.gate.command:show_versions", "List the versions, and the champion."),
        "grade": Command("evaluation.gate.command:grade", "Grade an adapter in each task."),
        "promote": Command("evaluation.gate.command:promote", "Make a new version champion, if it is better."),
        "rollback": Command("serving.commands.deploy:rollback", "Go back to the previous champion or release."),
        "deploy": Command("serving.commands.deploy:deploy", "Put a version into service without a pause."),
        "export": Command("evaluation.publish.export:export", "Write a version for llama.cpp, MLflow and others."),
        "push": Command("evaluation.publish.push:push", "Publish a version on the model hub, with a card."),
    }),
    "eval": Group("Measure how good a system is, and what it costs.",
      "revelator eval run evaluation/configs/world.yaml --out runs/evaluations/auto", {
        "run": Command("evaluation.run:evaluate", "Ask systems, a reader or an agent a benchmark's questions."),
        "report": Command("evaluation.report.command:report", "Compare several runs on one page."),
        "cost": Command("evaluation.cost:cost", "Calculate what serving so many questions takes."),
    }),
    "plan": Group("Check, make and run plans.",
      'revelator plan check "Who directed UHF? * When was {director} born?"', {
        "check": Command("revelator.plans.commands:check", "Show a plan, and whether it can be executed."),
        "make": Command("serving.commands.plan:make", "Let the model route and plan a question."),
        "run": Command("serving.commands.plan:run", "Run a plan, and show what each node answers."),
    }),
}
# fmt: on

EXTRAS = {"data_gen": "data", "training": "train", "serving": "serve", "evaluation": "eval"}
RARE_EXTRAS = {
    "faiss": "dense",
    "sentence_transformers": "dense",
    "ray": "ray",
    "pytriton": "server",
    "bitsandbytes": "train",
    "presidio_analyzer": "redact",
    "detect_secrets": "redact",
    "pymilvus": "milvus",
    "milvus_lite": "milvus",
}
# the shell's exit statuses of a command that Ctrl-C, or SIGTERM, ended
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


class LazyGroup(click.Group):
    """A click group over a dictionary like `COMMANDS`."""

    def __init__(self, name: str | None = None, *, lazy: dict[str, Command | Group] | None = None, **settings: object):
        super().__init__(name, **settings)  # type: ignore[arg-type]
        self.lazy = COMMANDS if lazy is None else lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        match self.lazy.get(name):
            case Group(about, example, commands):
                return LazyGroup(name, lazy=commands, help=about, epilog=f"\b\nExample:\n  {example}")
            case Command(place):
                module, attribute = place.split(":")
                return getattr(importlib.import_module(module), attribute)
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C ends a command with one line, which holds what its KeyboardInterrupt says."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            click.echo(": ".join(["stopped", *map(str, stop.args)]), err=True)
            ctx.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.lazy and args[0][:1].isalnum():
            ctx.fail(f"No such command '{args[0]}'.{suggest_command(args[0], self.lazy, ctx.command_path)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kind in (("Commands", Command), ("Groups of commands", Group)):
            rows = [(name, entry.about) for name, entry in self.lazy.items() if isinstance(entry, kind)]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def suggest_command(word: str, commands: dict[str, Command | Group], path: str) -> str:
    """Suggests the command, at this level or below it, whose name is nearest to `word`; if none is near, names those of
    this level."""
    names = {line.rpartition(" ")[2]: line for line in reversed(list(list_command_lines(commands, path, groups=True)))}
    near = difflib.get_close_matches(word, names, n=1)
    return f" Did you mean '{names[near[0]]}'?" if near else f" There are: {', '.join(commands)}."


def list_command_lines(
    commands: dict[str, Command | Group], path: str = "revelator", *, groups: bool = False
) -> Iterator[str]:
    """Lists what a person types for each command, the nearest level first; with `groups`, for each group as well."""
    for name, entry in commands.items():
        if groups or isinstance(entry, Command):
            yield f"{path} {name}"
    for name, entry in commands.items():
        if isinstance(entry, Group):
            yield from list_command_lines(entry.commands, f"{path} {name}", groups=groups)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="revelator")
def revelator() -> None:
    """One small model compiles a question into a plan; a symbolic executor runs it.

    \b
    Examples:
      revelator demo
      revelator plan check "Who directed UHF? * When was {director} born?"
      revelator index build handbook/ --out runs/indexes/mine
      revelator ask "What is the extension of the head of the Flume Laboratory?"
    """


def main() -> None:
    """Entry point."""
    gc.set_threshold(10_000)  # an import makes many objects and no garbage: `train` starts in four fifths of the time
    run(revelator)


def run(command: Callable[[], object]) -> None:
    """Runs a command as a program: prints our own errors as one message, and exits with their status.

    Prints `?` for a character that the terminal cannot show.
    """
    _end_in_order_at_sigterm()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        command()
    except RevelatorError as error:
        _exit(error)
    except OSError as error:
        if error.errno == errno.ENOSPC and not error.filename:  # standard output: what it still holds goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        elif not error.filename or not error.strerror:
            raise
        _exit(ConfigError(error.strerror or str(error), where=error.filename and str(error.filename)))
    except ModuleNotFoundError as error:
        extra = find_extra(error)
        if extra is None:
            raise
        message = f"the package {error.name} is not installed"
        _exit(ConfigError(message, hint=f"install what this command needs: pip install 'revelator[{extra}]'"))


def _exit(error: RevelatorError) -> NoReturn:
    click.echo(f"error: {error}", err=True)
    sys.exit(error.exit_status)


def find_extra(error: ModuleNotFoundError) -> str | None:
    """Finds the extra that installs the missing module; None for a module of our own.

    It is the extra of our outermost package in the traceback, because that extra brings all that its commands need.
    Modules that only some commands need have an extra of their own.
    """
    missing = (error.name or "").partition(".")[0]
    if not missing or missing in {"revelator", *EXTRAS}:
        return None
    if missing in RARE_EXTRAS:
        return RARE_EXTRAS[missing]
    frames = traceback.walk_tb(error.__traceback__)
    packages = (frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in frames)
    return next((EXTRAS[package] for package in packages if package in EXTRAS), "all")


def _end_in_order_at_sigterm() -> None:
    """Makes SIGTERM unwind the stack as Ctrl-C does, so that staged files are removed; a forked process just ends."""
    own = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() != own:
            os._exit(TERMINATED)
        signal.signal(signal.SIGTERM, lambda *_: None)  # once: a second one would break off the tidying
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
