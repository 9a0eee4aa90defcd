"""The HTTP front: one application for people, programs and monitoring.

    GET  /, /web/…, /api/…                        the inspector's page and what it asks (`serving.inspector.app`)
    /v1/chat/completions, /v1/responses, …        OpenAI's (`serving.inspector.chat`, `.responses`)
    /v2/…                                         KServe's protocol (`serving.http.kserve`)
    /mcp                                          the Model Context Protocol (`serving.service.mcp_front`)
    GET  /metrics, /health

A body is neither chunked nor compressed, has a bounded size, and must arrive within `ARRIVAL_SECONDS`. A connection on
which no request comes is closed after that time (`close_idle`).
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from revelator.channels import Tls
from revelator.errors import ConfigError, RevelatorError
from revelator.spans import find_tracking_server
from serving.http import kserve
from serving.http.bodies import BodyLimits
from serving.http.callers import Callers
from serving.http.protection import Protection, is_loopback
from serving.inspector import Runs, Server, app
from serving.models.releases import name_version
from serving.service import mcp_front
from serving.service.admission import PEER
from serving.service.questions import MODELS, Metadata, Questions
from serving.service.uploads import Uploads

ARRIVAL_SECONDS = 15.0
HEADER_BYTES = 16_384
HTTP_SHARE = 0.6  # of the files that may be open: the rest is left to gRPC, models and indexes
METRICS = "/metrics"  # on this machine it needs no token
ERRORS = (RevelatorError, HTTPException, ClientDisconnect, Exception)


def create_app(
    questions: Questions,
    address: str,
    runs: Path,
    hosts: Collection[str],
    callers: Callers,
    uploads: Uploads | None = None,
) -> Starlette:
    """The ASGI application over the questions that are answered at `address` (gRPC), by which the page calls them. Runs
    are kept in the folder `runs`; `hosts` and `callers` are those of `serving.http.protection`; `uploads` takes
    documents from the page."""

    async def ask(
        question: str, options: str, deadline_ms: float | None, id: str, groups: frozenset[str]
    ) -> kserve.Texts:
        metadata = Metadata(id, {"deadline_ms": deadline_ms}, groups=groups)
        trace = await questions.answer(question, options, metadata)
        return {"answer": trace.answer, "trace": await asyncio.to_thread(trace.dump_json)}

    async def list_models() -> dict[str, str]:
        return {model: name_version(version) for model in MODELS if (version := questions.find_version(model))}

    async def show_metrics(request: Request) -> Response:
        for retriever in questions.indexes.values():
            await retriever.follow()  # a service that nobody asks takes up a new version with the next look at it
        questions.report_waiting()
        return Response(await asyncio.to_thread(generate_latest), media_type="text/plain; version=0.0.4")

    async def show_health(request: Request) -> Response:
        is_ready = await questions.is_ready()
        state = "ready" if is_ready else "stopping" if questions.is_stopping else "not ready"
        return JSONResponse({"status": state}, 200 if is_ready else 503)

    server = Server(address, questions.ask, list_models, questions.executor.sources, uploads is not None)
    kept = Runs(runs)
    inspector = app.make_routes([server], kept, find_tracking_server())
    sessions = mcp_front.open_sessions(mcp_front.make_server(questions, server, kept))
    agents = Route(mcp_front.PATH, mcp_front.Agents(sessions))
    own: list[BaseRoute] = [Route(METRICS, show_metrics), Route("/health", show_health), agents]
    own += uploads.make_routes() if uploads else []
    return Starlette(
        routes=[*kserve.make_routes(ask, questions.is_ready), *own, *inspector],
        middleware=[
            Middleware(Protection, hosts=hosts, callers=callers, by_address=True, probes=(METRICS,)),
            Middleware(BodyLimits),
            Middleware(Arrival),
        ],
        exception_handlers=dict.fromkeys(ERRORS, _answer_error),
        lifespan=lambda _: sessions.run(),
    )


async def _answer_error(request: Request, error: Exception) -> Response:
    """In the form that the route's clients read."""
    form = kserve if request.url.path.startswith("/v2/") else app
    return await form.answer_error(request, error)


class Arrival:
    """ASGI middleware. Names the client for admission, and ends a request whose body does not arrive in time, with its
    connection."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        host, port = scope["client"] or ("", 0)
        PEER.set(f"{host}:{port}" if is_loopback(host) else host)
        ends, arrived, is_late = asyncio.get_running_loop().time() + ARRIVAL_SECONDS, False, False

        async def receive_in_time() -> Message:
            nonlocal arrived, is_late
            if arrived:
                return await receive()
            try:
                async with asyncio.timeout_at(ends):
                    message = await receive()
            except TimeoutError:
                is_late = True
                raise HTTPException(408, f"the body did not arrive within {ARRIVAL_SECONDS:g} s") from None
            arrived = not message.get("more_body")
            return message

        async def send_and_close(message: Message) -> None:
            if is_late and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self.app(scope, receive_in_time, send_and_close)


def listen(host: str, port: int, hint: str) -> socket.socket:
    """A socket that listens. Raises ConfigError with the hint."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigError(f"cannot listen there: {error.strerror}", where=f"{host}:{port}", hint=hint) from error


def name_certificates(tls: Tls | None, mutual: bool) -> dict[str, Any]:
    """Uvicorn's options for TLS; with `mutual` clients must show a certificate of `tls.ca`, too."""
    if tls is None:
        return {}
    wanted = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
    return {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key, "ssl_ca_certs": str(tls.ca), "ssl_cert_reqs": wanted}


@asynccontextmanager
async def serve_http(
    application: Starlette, listening: socket.socket, tls: Tls | None = None, mutual: bool = False
) -> AsyncIterator[int]:
    """Serves at a socket that listens until the end of the block; yields its port."""
    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        limit_concurrency=round(HTTP_SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0]),  # 503 beyond it
        timeout_graceful_shutdown=2,
        **name_certificates(tls, mutual),
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await asyncio.sleep(0)  # now it has taken the signals, which others may take after it
    closing = asyncio.create_task(close_idle(server))
    try:
        yield listening.getsockname()[1]
    finally:
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        server.should_exit = True
        await serving


async def close_idle(server: uvicorn.Server) -> None:
    """Closes connections on which no request has come whole up to its body between two looks: uvicorn itself waits
    for the first one without end, and for the next `timeout_keep_alive` seconds."""
    before: dict[Any, object] = {}
    while True:
        await asyncio.sleep(ARRIVAL_SECONDS)
        idle = {
            connection: connection.cycle
            for connection in server.server_state.connections
            if isinstance(connection, H11Protocol) and connection.conn.their_state is h11.IDLE
        }
        for connection, cycle in idle.items():
            if connection in before and before[connection] is cycle:  # no request came and went meanwhile
                connection.transport.close()
        before = idle
