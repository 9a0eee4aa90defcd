"""`revelator ask`: one question to a running server; its answer, and on request its steps, on the terminal."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager, aclosing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live

from revelator.errors import DataError, RevelatorError, Unavailable
from revelator.limits import LONGEST_MS, STRATEGIES
from revelator.options import AS_JSON, HOME
from revelator.plans.faults import describe_faults
from revelator.trace import Replay, Trace
from revelator.wire import write_error
from serving.home.running import find_running_server

if TYPE_CHECKING:
    from revelator.client import Options


@click.command()
@click.argument("question")
@click.option(
    "--plan",
    metavar="PLAN",
    help="Run this in place of the model's own plan: an expression; with --strategy logic a logical query, with atomic "
    "a tree as JSON.",
)
@click.option("--strategy", default="auto", show_default=True, type=click.Choice(STRATEGIES), help="Which way to go.")
@click.option(
    "--reuse",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A trace that --json wrote: what is asked again is taken from it.",
)
@click.option(
    "--where",
    default="",
    metavar="FILTER",
    help='Ask only the documents whose fields fulfil it: year >= 2024 and team = "ops".',
)
@click.option("--fresh", is_flag=True, help="Ask every step anew, also one whose answer the service has in memory.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, LONGEST_MS / 1000, min_open=True),
    metavar="SECONDS",
    help="The server answers by then, with what it has (default: its own deadline, which is also the longest).",
)
@click.option("--url", help="host:port of the server's gRPC (default: the server of --home).")
@HOME
@click.option("--steps", is_flag=True, help="Show the way to the answer below it: route, plan, each step, cost.")
@click.option("--stream", is_flag=True, help="Show the plan filling in while it runs; with --json, an event a line.")
@AS_JSON
def ask(
    question: str,
    plan: str | None,
    strategy: str,
    reuse: Path | None,
    where: str,
    fresh: bool,
    timeout: float | None,
    url: str | None,
    home: Path,
    steps: bool,
    stream: bool,
    as_json: bool,
) -> None:
    """Ask a running server, and see the answer, how sure it is and where it stands. With --steps, see the way to it.

    To correct a plan, copy it from --steps, edit it and give it back with --plan; with --reuse, only what has changed
    is asked again.

    A question that nothing supports is unanswered, with the reason; only a fault ends the command with status 1.

    \b
    Examples:
      revelator ask "What is the extension of the head of the Flume Laboratory?"
      revelator ask "What is the extension of the head of the Flume Laboratory?" --steps
      revelator ask "Who is the head of the Flume Laboratory?" --stream
      revelator ask "Who is the head of the Flume Laboratory?" --strategy single --json > trace.json
      revelator ask "Who is the head of the Flume Laboratory?" --where 'type = "md" and path like "research/*"'
      revelator ask "Which papers deal with gene therapy, but not in mice?" --strategy logic
      PLAN="Who is the head of the Flume Laboratory? * What is the extension of {head}?"
      revelator ask "What is the extension of the head of the Flume Laboratory?" --plan "$PLAN" --reuse trace.json
    """
    from revelator.client import Client, Options
    from revelator.trace_view import print_trace

    try:
        earlier = _read_trace(reuse) if reuse else None
        options = Options(plan=plan, strategy=strategy, reuse=earlier, fresh=fresh)
        if where:
            options["where"] = where
        address = find_address(home) if url is None else url
        if stream:
            trace = asyncio.run(_stream(address, timeout, question, options, as_json))
        else:
            with Client(address, timeout) as client:
                trace = client.ask(question, **options).trace
    except RevelatorError as error:
        if as_json:
            click.echo(write_error(error))
            raise SystemExit(error.exit_status) from error
        raise describe_faults(plan, error) from error
    if as_json and not stream:
        click.echo(json.dumps(trace.to_json(), ensure_ascii=False))
    elif not as_json:
        print_trace(trace, Console(), steps)
    if trace.outcome == "failed":
        raise SystemExit(1)


async def _stream(url: str, seconds: float | None, question: str, options: Options, as_json: bool) -> Trace:
    """The trace of a question whose events were shown as they came: written as JSON lines, or drawn on the terminal."""
    from revelator.client import AsyncClient
    from revelator.trace_view import build_view

    replay = Replay()
    console = Console()
    shows = console.is_terminal and not as_json
    drawn = Live(console=console, transient=True, refresh_per_second=10)
    screen: AbstractContextManager[Live | None] = drawn if shows else nullcontext()
    with screen as live:
        async with AsyncClient(url, seconds) as client, aclosing(client.stream(question, **options)) as events:
            async for event in events:
                replay.add(event)
                if as_json:
                    click.echo(json.dumps(event.to_json(), ensure_ascii=False))
                elif live:
                    live.update(build_view(replay.build()))
    return replay.build()


def _read_trace(path: Path) -> Trace:
    try:
        return Trace.from_json(json.loads(path.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise DataError("this is no JSON", where=str(path), hint="`revelator ask --json` writes a trace") from error
    except DataError as error:
        raise DataError(error.message, where=str(path), hint=error.hint) from error


def find_address(home: Path) -> str:
    """The gRPC address of the server of this home folder. Raises Unavailable that says how to start one."""
    running = find_running_server(home)
    if running is None:
        hint = f"start one with `revelator serve --home {home}`, or name one with --url host:port"
        raise Unavailable("no server runs for this home folder", where=str(home), hint=hint)
    return running.grpc
