"""`revelator inspect`: opens the page of a running service, or serves one for services elsewhere, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from revelator.channels import TOKEN, read_token
from revelator.errors import ConfigError, Unavailable
from revelator.options import HOME

if TYPE_CHECKING:
    pass

ADDRESSES = "host:port of a service's gRPC: serve a page for it; give two to compare what they serve."


@click.command()
@click.option("--url", "urls", multiple=True, help=ADDRESSES)
@HOME
@click.option("--host", default="127.0.0.1", show_default=True, help="With --url: address to listen at.")
@click.option("--port", default=8088, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--allow-host", "names", multiple=True, help="A further name under which browsers may call the page.")
def inspect(urls: tuple[str, ...], home: Path, host: str, port: int, names: tuple[str, ...]) -> None:
    """Watch plans being compiled and run, mend them, run them again, and compare.

    Opens the page of the service of --home in a browser, and prints its address. With --url it serves a page of its
    own, and /v1/chat/completions, for services that run elsewhere; with REVELATOR_TOKEN in the environment both
    ask for that token; beyond loopback there must be one. The newest 200 runs are kept below --home, in `inspected`.

    Where OTEL_EXPORTER_OTLP_ENDPOINT names an MLflow server, what you say of an answer and of its plan is kept there,
    on the question's trace, and `revelator data build` makes training questions of it.

    \b
    Examples:
      revelator inspect
      revelator inspect --home runs/demo
      revelator inspect --url 127.0.0.1:8001 --url 127.0.0.1:9001 --port 9090
      REVELATOR_TOKEN=… revelator inspect --url … --host 0.0.0.0 --allow-host plans.example.org
    """
    from revelator.endpoints import LOOPBACK
    from serving.home.running import find_running_server

    if not urls:
        running = find_running_server(home)
        if running is None:
            hint = f"start one: revelator serve --home {home}; or name one with --url host:port"
            raise Unavailable("no service of this home folder runs", where=str(home), hint=hint)
        click.echo(f"page    {running.http}/\nOpenAI  {running.http}/v1")
        webbrowser.open(running.http)
        return
    token = read_token()
    if host not in LOOPBACK and token is None:
        raise ConfigError("beyond loopback a token is needed", where="--host", hint=f"export {TOKEN}=…")
    asyncio.run(_serve(urls, host, port, home / "inspected", {host, *LOOPBACK, *names}, token))
    click.echo("stopped")


async def _serve(urls: tuple[str, ...], host: str, port: int, folder: Path, hosts: set[str], token: str | None) -> None:
    from revelator.client import AsyncClient
    from revelator.spans import find_tracking_server
    from serving.inspector import Runs, Server, create_app
    from serving.inspector.inquiry import ask_elsewhere
    from serving.service.control import describe_version, find_served_models
    from serving.service.http_front import listen, serve_http

    stopped = asyncio.Event()
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(listen(host, port, "name another --port, or 0 for any that is free"))
        servers = []
        for url in urls:
            models = await find_served_models(url)
            client = await stack.enter_async_context(AsyncClient(url))
            servers.append(Server(url, ask_elsewhere(client), partial(find_served_models, url)))
            which = f", revelator {describe_version(models['revelator'])}" if "revelator" in models else ""
            click.echo(f"asks    {url}{which}")
        app = create_app(servers, Runs(folder), hosts=hosts, token=token, tracking_uri=find_tracking_server())
        port = await stack.enter_async_context(serve_http(app, listening))
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        click.echo(f"page    {address}/\nOpenAI  {address}/v1\nruns    {folder}\nstop: Ctrl-C")
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
