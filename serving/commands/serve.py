"""`revelator serve`: the Triton server of a home folder, in the foreground, until it is told to stop."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from revelator.registry import home_folder

if TYPE_CHECKING:
    from serving.triton.repository import Settings

FOLDER = click.Path(path_type=Path)
LOOK_SECONDS = 1.0  # between looks at the server's processes; a look takes some 5 ms


@click.command()
@click.option("--home", type=FOLDER, default=home_folder, help="Home folder.  [env: REVELATOR_HOME; default: runs]")
@click.option(
    "--ports", default="auto", show_default=True, help="HTTP,gRPC,metrics; auto: 8000,8001,8002 if free, else others."
)
@click.option("--index", type=FOLDER, help="Index to search (default: as recorded, else the only one below --home).")
@click.option("--generator", metavar="embedded|URL", help="Who reads passages (default: as recorded, else embedded).")
@click.option("--generator-model", metavar="NAME", help="The endpoint's model; its key is read from OPENAI_API_KEY.")
@click.option("--sources", type=FOLDER, help="YAML file of knowledge sources, for the strategy atomic.")
@click.option("--max-in-flight", type=click.IntRange(1), help="Questions at a time; the next is refused at once.")
@click.option(
    "--cache", type=click.IntRange(0), metavar="N", help="Keep N answers for equal questions (default: none)."
)
@click.option(
    "--decoding",
    type=click.Choice(["grammar", "names", "free"]),
    help="How plans are written: each one valid, of the question's own words, or freely (default: as recorded, else"
    " grammar).",
)
def serve(
    home: Path,
    ports: str,
    index: Path | None,
    generator: str | None,
    generator_model: str | None,
    sources: Path | None,
    max_in_flight: int | None,
    cache: int | None,
    decoding: str | None,
) -> None:
    """Serve the deployed version on this machine's loopback until Ctrl-C or SIGTERM.

    Addresses are written to serve.json below --home, the server's log to logs/triton.log. A model whose process dies
    is loaded again.

    \b
    Examples:
      revelator serve
      revelator serve --home runs/demo --ports 9000,9001,9002
      revelator serve --sources sources.yaml
      revelator serve --generator http://127.0.0.1:11434/v1 --generator-model llama3.2
    """
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        from serving.triton.repository import Settings

        _serve(home, ports, Settings(index, generator, generator_model, max_in_flight, decoding, sources, cache))
    except KeyboardInterrupt:
        click.echo("stopped")


def _stop(*_: object) -> None:
    """The first signal stops the server, which takes seconds; more of them change nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _serve(home: Path, ports: str, settings: Settings) -> None:
    from serving.triton.live import live_server
    from serving.triton.repository import MODELS, recorded_parameters
    from serving.triton.server import read_ports
    from serving.triton.watch import Watch

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        loading = progress.add_task("start the server", total=len(MODELS))
        waiting = set(MODELS)

        def report(model: str) -> None:
            waiting.discard(model)
            progress.update(loading, advance=1, description=f"waiting for {', '.join(sorted(waiting))}")

        with live_server(home, read_ports(ports), settings, report) as (server, running):
            progress.stop()
            for name, version in running.models.items():
                click.echo(f"{name} version {version}: ready")
            generator = recorded_parameters(home, "generator")
            click.echo(f"index   {recorded_parameters(home, 'retriever')['index']}")
            click.echo(f"reader  {generator['endpoint']} {generator['model']}".rstrip())
            click.echo(f"gRPC    {running.grpc}\nHTTP    {running.http}\nmetrics {running.metrics}")
            click.echo(f'log     {running.log}\nask: revelator ask "…" --home {home}   stop: Ctrl-C')
            watch = Watch(home, server.pid, server.url, running.models, click.echo)
            while server.poll() is None:
                watch.look()
                time.sleep(LOOK_SECONDS)
            raise server.end()
