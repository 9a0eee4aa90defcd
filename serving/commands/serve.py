"""`revelator serve`: the Triton server of a home folder, in the foreground, until it is told to stop."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from revelator.errors import Unavailable
from revelator.registry import home_folder

FOLDER = click.Path(path_type=Path)


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
def serve(
    home: Path,
    ports: str,
    index: Path | None,
    generator: str | None,
    generator_model: str | None,
    sources: Path | None,
    max_in_flight: int | None,
) -> None:
    """Serve the deployed version on this machine's loopback until Ctrl-C or SIGTERM.

    Addresses are written to serve.json below --home, the server's log to logs/triton.log.

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
        _serve(home, ports, (index, generator, generator_model, max_in_flight, sources))
    except KeyboardInterrupt:
        click.echo("stopped")


def _stop(*_: object) -> None:
    """The first signal stops the server, which takes seconds; more of them change nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _serve(home: Path, ports: str, chosen: tuple[Path | None, str | None, str | None, int | None, Path | None]) -> None:
    from serving.triton.live import live_server
    from serving.triton.repository import MODELS, Settings
    from serving.triton.server import error_lines, read_ports

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        loading = progress.add_task("start the server", total=len(MODELS))

        def report(model: str) -> None:
            progress.update(loading, advance=1, description=f"{model} is ready")

        with live_server(home, read_ports(ports), Settings(*chosen), report) as (server, running):
            progress.stop()
            for name, version in running.models.items():
                click.echo(f"{name} version {version}: ready")
            click.echo(
                f"gRPC    {running.grpc}\nHTTP    {running.http}\nmetrics {running.metrics}\nlog     {running.log}"
            )
            click.echo(f'ask: revelator ask "…" --home {home}   stop: Ctrl-C')
            sys.stdout.flush()
            while (status := server.poll()) is None:
                time.sleep(0.5)
            said = "\n  ".join(error_lines(server.log)[-5:])
            raise Unavailable(f"the Triton server ended with status {status}\n  {said}", where=str(server.log))
