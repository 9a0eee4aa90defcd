"""`revelator inspect`: the inspector's page and its OpenAI-compatible route, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import click

from revelator.endpoints import TOKEN, check_key
from revelator.errors import ConfigError
from revelator.options import HOME
from serving.commands.ask import find_address

ADDRESSES = "host:port of a server's gRPC; give two to compare what they serve.  [default: the server of --home]"


@click.command()
@click.option("--url", "urls", multiple=True, help=ADDRESSES)
@HOME
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default=8088, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--allow-host", "names", multiple=True, help="A further name under which browsers may call this server.")
def inspect(urls: tuple[str, ...], home: Path, host: str, port: int, names: tuple[str, ...]) -> None:
    """Watch plans being compiled and run, mend them, run them again, and compare.

    Serves one page, and /v1/chat/completions for chat front ends. With REVELATOR_INSPECT_TOKEN in the environment both
    ask for that token; beyond loopback there must be one. The newest 200 runs are kept below --home, in `inspected`.

    Where OTEL_EXPORTER_OTLP_ENDPOINT names an MLflow server, what you say of an answer and of its plan is kept there,
    on the question's trace, and `revelator data collect` makes training questions of it.

    \b
    Examples:
      revelator inspect
      revelator inspect --home runs/demo --port 9090
      revelator inspect --url 127.0.0.1:8001 --url 127.0.0.1:9001
      REVELATOR_INSPECT_TOKEN=… revelator inspect --host 0.0.0.0 --allow-host plans.example.org
    """
    from serving.http.gateway import listen
    from serving.http.protection import LOOPBACK

    token = check_key(os.environ[TOKEN], TOKEN) if TOKEN in os.environ else None
    if host not in LOOPBACK and token is None:
        raise ConfigError("beyond loopback a token is needed", where="--host", hint=f"export {TOKEN}=…")
    asked = urls or (find_address(home),)
    try:
        with listen(host, port, "name another --port, or 0 for any that is free") as listening:
            asyncio.run(_serve(asked, listening, home / "inspected", {host, *LOOPBACK, *names}, token))
    except KeyboardInterrupt:
        click.echo("stopped")


async def _serve(
    urls: tuple[str, ...],
    listening: socket.socket,
    folder: Path,
    hosts: set[str],
    token: str | None,
) -> None:
    import uvicorn

    from revelator.client import AsyncClient
    from revelator.spans import find_tracking_server
    from serving.http.gateway import make_config
    from serving.inspector import Runs, Server, create_app
    from serving.triton.control import describe_version, find_served_models

    async with AsyncExitStack() as stack:
        servers = []
        for url in urls:
            models = await find_served_models(url)
            client = await stack.enter_async_context(AsyncClient(url))
            servers.append(Server(url, client.stream, partial(find_served_models, url)))
            which = f", revelator {describe_version(models['revelator'])}" if "revelator" in models else ""
            click.echo(f"asks    {url}{which}")
        app = create_app(servers, Runs(folder), hosts=hosts, token=token, tracking_uri=find_tracking_server())
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        click.echo(f"page    {address}/\nOpenAI  {address}/v1\nruns    {folder}\nstop: Ctrl-C")
        await uvicorn.Server(make_config(app)).serve(sockets=[listening])
