"""The executor inside Triton over HTTP: KServe's protocol (`serving.http.kserve`), and metrics on a port of their own.

Triton's own HTTP server is off: that of 2.51 ends with SIGSEGV on a request of half a million chunks, inflates what it
is sent, and lets a page of any site ask. Here a request is read whole before it goes on, within bounds of size and
time; it may be neither chunked nor compressed; and what goes on is a question to the executor, over gRPC, and nothing
else. Each application runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import h11
import httpx
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from revelator.channels import Tls
from revelator.client import AsyncClient
from revelator.errors import ConfigError, RevelatorError
from revelator.wire import build_request_from_json
from serving.http.kserve import BODY_BYTES, OUTPUTS, Ready, Texts, answer_error, make_routes
from serving.http.protection import Protection

SMALL_BYTES = 1 << 16  # bodies up to this size always have room: there are no more than the connections
ALL_BYTES = 1 << 26  # of all larger bodies whose requests are being read or answered
METRICS_SECONDS = 5.0


def create_gateway(url: str, seconds: float, ready: Ready, hosts: Collection[str]) -> Starlette:
    """The ASGI application that puts questions to the executor at `url` (gRPC) and waits `seconds` for each; `ready`
    says whether it is there. `hosts` are the names that a request may use in its Host header; IP addresses are always
    accepted."""
    clients: list[AsyncClient] = []  # one while the application runs

    @asynccontextmanager
    async def connect(_: Starlette) -> AsyncIterator[None]:
        async with AsyncClient(url, seconds) as client:
            clients.append(client)
            yield

    async def ask(question: str, options: str, deadline_ms: float | None, id: str) -> Texts:
        reply = await clients[0].send(build_request_from_json(question, options, seconds, deadline_ms))
        return {name: reply.as_numpy(name)[0].decode() for name in OUTPUTS}

    return _make_application(make_routes(ask, ready), hosts, connect)


def create_metrics(url: str, folder: Path, hosts: Collection[str]) -> Starlette:
    """The ASGI application of the page of metrics: Triton's, which `url` names, and ours, which the models' processes
    write into `folder`. `hosts`: as of `create_gateway`."""

    def sum_up() -> bytes:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(folder))
        return generate_latest(registry)

    async def page(request: Request) -> Response:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=METRICS_SECONDS) as asking:
                found = await asking.get(url)
        except httpx.HTTPError as error:
            return JSONResponse({"error": f"Triton's page of metrics: {type(error).__name__}"}, 503)
        content = found.content + await asyncio.to_thread(sum_up)
        return Response(content, found.status_code, media_type="text/plain; version=0.0.4")

    return _make_application([Route("/metrics", page)], hosts)


def _make_application(
    routes: list[Route], hosts: Collection[str], lifespan: Lifespan[Starlette] | None = None
) -> Starlette:
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Protection, hosts=hosts, by_address=True), Middleware(BodyLimits)],
        exception_handlers=dict.fromkeys((RevelatorError, HTTPException, ClientDisconnect, Exception), answer_error),
    )


class BodyLimits:
    """ASGI middleware. Refuses chunked and compressed bodies and bodies over BODY_BYTES; reserves memory for large ones
    until the reply is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._reserved = 0  # bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = Request(scope)
        if refusal := self._find_refusal(request):
            return await refusal(scope, receive, send)
        length = int(request.headers.get("content-length", "0"))
        size = length if length > SMALL_BYTES else 0
        if self._reserved + size > ALL_BYTES:
            refusal = _refuse(503, "too many large requests at the same time: ask again later")
            return await refusal(scope, receive, send)
        self._reserved += size
        try:
            await self.app(scope, receive, send)
        finally:
            self._reserved -= size

    @staticmethod
    def _find_refusal(request: Request) -> JSONResponse | None:
        length = request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers:
            return _refuse(411, "a chunked body is not taken: send Content-Length")
        if request.headers.get("content-encoding", "identity") != "identity":
            return _refuse(415, "a compressed body is not taken")
        if not length.isdigit() or len(length) > 10 or int(length) > BODY_BYTES:
            return _refuse(413, f"a body has {BODY_BYTES:,} bytes at most")
        return None


def _refuse(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status, {"Connection": "close"})


ARRIVAL_SECONDS = 15.0  # from the connection, or from a later request's first byte, to a whole request
CONNECTIONS = 256  # at a time; the next is refused with 503
HEADER_BYTES = 16_384


class ArrivalTimeout(H11Protocol):
    """Ends a connection whose request does not arrive: a client that sends a byte now and then holds no place."""

    arrival: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self.arrival is None:
            self._await_request()
        super().data_received(data)

    def on_response_complete(self) -> None:
        if self.arrival:
            self.arrival.cancel()  # else it would end a later request, whose body is on its way
        self.arrival = None  # until bytes come, uvicorn's limit of idle connections holds
        super().on_response_complete()

    def _await_request(self) -> None:
        self.arrival = self.loop.call_later(ARRIVAL_SECONDS, self._close_if_incomplete)

    def _close_if_incomplete(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            self.transport.close()


@contextmanager
def serve_http(
    host: str, port: int, application: ASGIApp, hint: str, tls: Tls | None = None, mutual: bool = False
) -> Iterator[int]:
    """Serves in a thread until the end of the block; yields the port. Raises ConfigError with the hint for a port that
    cannot be listened on."""
    with listen(host, port, hint) as listening:
        server = uvicorn.Server(make_config(application, tls, mutual))
        thread = threading.Thread(target=server.run, args=([listening],), name="http", daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


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


def make_config(application: ASGIApp, tls: Tls | None = None, mutual: bool = False) -> uvicorn.Config:
    """How every application of ours is served; with `mutual` clients must show a certificate of `tls.ca`, too."""
    return uvicorn.Config(
        application,
        http=ArrivalTimeout,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=2,
        **name_certificates(tls, mutual),
    )
