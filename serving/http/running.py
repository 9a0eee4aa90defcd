"""Runs the HTTP applications of `revelator serve` in a thread of their own, on one event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from revelator.endpoints import Tls
from revelator.errors import ConfigError

ARRIVAL_SECONDS = 15.0  # from the connection, or from the last reply, to a whole request
CONNECTIONS = 256  # at a time; the next is refused with 503
HEADER_BYTES = 16_384
Applications = Callable[[AsyncExitStack], Coroutine[Any, Any, Mapping[int, ASGIApp]]]


class Arriving(H11Protocol):
    """Ends a connection whose request does not arrive: a client that sends a byte now and then holds no place."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        self.loop.call_later(ARRIVAL_SECONDS, self._look, self.cycle)

    def _look(self, before: object) -> None:
        if not self.transport.is_closing() and (self.cycle is before or self.cycle.more_body):
            self.transport.close()


@contextmanager
def running(host: str, applications: Applications, tls: Tls | None = None, mutual: bool = False) -> Iterator[None]:
    """Serves for the block: `applications`, awaited in the thread's loop with the stack of what must be released, gives
    one by port. Raises what it raises, and ConfigError for a port that cannot be listened on."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="http", daemon=True)
    thread.start()
    serving = asyncio.run_coroutine_threadsafe(_begun(host, applications, tls, mutual), loop).result()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(serving.end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class Serving:
    """What runs: to end it, each server is told, and then what the applications use is released."""

    stack: AsyncExitStack
    servers: list[tuple[uvicorn.Server, asyncio.Task[None]]]

    async def end(self) -> None:
        for server, _ in self.servers:
            server.should_exit = True
        await asyncio.gather(*(task for _, task in self.servers))
        await self.stack.aclose()


async def _begun(host: str, applications: Applications, tls: Tls | None, mutual: bool) -> Serving:
    serving = Serving(AsyncExitStack(), [])
    try:
        for port, application in (await applications(serving.stack)).items():
            listening = _listen(host, port)
            server = uvicorn.Server(_config(application, tls, mutual))
            serving.servers.append((server, asyncio.create_task(server.serve(sockets=[listening]))))
    except BaseException:
        await serving.end()
        raise
    return serving


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        hint = "name other ports with --ports"
        raise ConfigError(f"cannot listen there: {error.strerror}", where=f"{host}:{port}", hint=hint) from error


def _config(application: ASGIApp, tls: Tls | None, mutual: bool) -> uvicorn.Config:
    files: dict[str, Any] = {}
    if tls:
        files = {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key, "ssl_ca_certs": str(tls.ca)}
        files["ssl_cert_reqs"] = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
    return uvicorn.Config(
        application,
        http=Arriving,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=2,
        **files,
    )
