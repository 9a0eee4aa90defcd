"""`revelator mcp`: the tools of a service for an agent on this machine, by the Model Context Protocol on stdio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, redirect_stdout
from importlib.metadata import version as find_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from revelator.channels import AUTHORIZATION, TOKEN, Tls, read_token
from revelator.errors import ConfigError, Unavailable
from revelator.options import HOME
from serving.commands.model_options import INDEX_ADDRESS
from serving.home.running import find_running_server

if TYPE_CHECKING:
    import httpx2
    from mcp.server.lowlevel.server import Server

    from serving.home.config import ServingConfig
    from serving.retrieval.places import IndexAddress


@click.command()
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option(
    "--index", type=INDEX_ADDRESS, help="Search this index in a process of its own, without a running service."
)
@HOME
def mcp(address: str | None, index: IndexAddress | None, home: Path) -> None:
    """Offer the tools ask, plan, check, run_plan and search to an agent over stdio (Model Context Protocol).

    The agent's program starts this command. It passes everything on to a running service: that of --home, or the one
    whose HTTP answers at HOST:PORT (with REVELATOR_TOKEN and the REVELATOR_TLS_… files of the environment, as every
    client). With --index, it needs no service: it searches an index with the settings of serving.yaml in --home.

    \b
    Examples:
      revelator mcp
      revelator mcp 127.0.0.1:8000
      revelator mcp --index runs/indexes/faculty
    """
    if address and index:
        raise ConfigError("a service at HOST:PORT searches its own index", where="--index", hint="give one of the two")
    if index:
        asyncio.run(_serve(_open_index(home, _configure(home, index))))
    else:
        asyncio.run(_serve(_join_service(_find_url(address, home))))


async def _serve(opening: AbstractAsyncContextManager[Server[Any]]) -> None:
    """Serves until standard input ends. What prints meanwhile does so on standard error: the output is the protocol's.
    A fault of opening comes as it is raised, not in a group of the transport's."""
    from mcp.server.stdio import stdio_server

    async with AsyncExitStack() as stack:
        with redirect_stdout(sys.stderr):
            server = await stack.enter_async_context(opening)
        read, write = await stack.enter_async_context(stdio_server())
        await server.run(read, write, server.create_initialization_options())


def _configure(home: Path, index: IndexAddress) -> ServingConfig:
    """What the home folder's file says, with this index; where nothing was deployed, the embedded base is released."""
    from serving.deploy.deploy import release_embedded_base
    from serving.home.config import read_settings
    from serving.home.configure import configure
    from serving.models.releases import read_release

    home.mkdir(parents=True, exist_ok=True)
    config = configure(home, **read_settings(home).chosen | {"index": index})
    if config.needs_release and read_release(home) is None:
        release_embedded_base(home)
    return config


@asynccontextmanager
async def _open_index(home: Path, config: ServingConfig) -> AsyncIterator[Server[Any]]:
    """A server over questions that this process answers."""
    from serving.inspector import Runs
    from serving.inspector import Server as Asked
    from serving.service.mcp_front import make_server
    from serving.service.questions import open_questions

    async with open_questions(home, config) as questions:

        async def list_models() -> dict[str, str]:
            return {}

        yield make_server(questions, Asked("stdio", questions.ask, list_models), Runs(home / "inspected"))


@asynccontextmanager
async def _join_service(url: str) -> AsyncIterator[Server[Any]]:
    """A server that passes everything on to the service at an address. Raises what `_require_service` does."""
    from mcp import types
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.lowlevel.server import Server

    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(_open_http())
        await _require_service(http, url)
        client = await stack.enter_async_context(Client(streamable_http_client(f"{url}/mcp", http_client=http)))

        async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
            return await client.list_tools()

        async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            report = context.session.report_progress
            return await client.call_tool(params.name, params.arguments, progress_callback=report)

        async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
            return await client.list_resources()

        async def list_templates(context: Any, params: Any) -> types.ListResourceTemplatesResult:
            return await client.list_resource_templates()

        async def read_resource(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
            return await client.read_resource(params.uri)

        yield Server(
            "revelator",
            version=find_version("revelator"),
            instructions=client.instructions,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_list_resources=list_resources,
            on_list_resource_templates=list_templates,
            on_read_resource=read_resource,
        )


def _find_url(address: str | None, home: Path) -> str:
    """The HTTP address of the service. Raises Unavailable where none runs for the home folder."""
    if address:
        scheme = "https" if Tls.from_environment() else "http"
        return address.rstrip("/") if "://" in address else f"{scheme}://{address}"
    running = find_running_server(home)
    if running is None:
        hint = f"start one with `revelator serve --home {home}`, name one by HOST:PORT of its HTTP, or give --index DIR"
        raise Unavailable("no service of this home folder runs", where=str(home), hint=hint)
    return running.http


async def _require_service(http: httpx2.AsyncClient, url: str) -> None:
    """Raises Unavailable where no service answers, and ConfigError for a token that it does not take."""
    import httpx2

    try:
        reply = await http.get(f"{url}/v2/health/live")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        hint = "is it running, and is this its HTTP address (HOST:PORT)? `revelator serve` prints it"
        raise Unavailable(f"no service answers: {error}", where=url, hint=hint) from error
    if reply.status_code == 401:
        raise ConfigError("the token is missing or wrong", where=url, hint=f"export {TOKEN}=…, as of the service")
    if reply.status_code != 200:
        hint = "give the HTTP address that `revelator serve` prints"
        raise Unavailable(f"what answers there is no service (HTTP {reply.status_code})", where=url, hint=hint)


def _open_http() -> httpx2.AsyncClient:
    """A client with the token and the TLS files that the environment names; a question ends by its own deadline."""
    import ssl

    import httpx2

    token, tls = read_token(), Tls.from_environment()
    context = ssl.create_default_context(cafile=tls.ca) if tls else True
    if isinstance(context, ssl.SSLContext) and tls and tls.cert:
        context.load_cert_chain(tls.cert, tls.key)

    async def name_server(request: httpx2.Request) -> None:
        if tls and tls.name:
            request.extensions["sni_hostname"] = tls.name

    return httpx2.AsyncClient(
        headers={AUTHORIZATION: f"Bearer {token}"} if token else {},
        verify=context,
        timeout=httpx2.Timeout(30, read=None),
        event_hooks={"request": [name_server]},
        trust_env=False,
    )
