"""Bounds of the bodies of HTTP requests: in size, each and together, and neither chunked nor compressed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.http.kserve import BODY_BYTES
from serving.http.protection import refuse

SMALL_BYTES = 1 << 16  # bodies up to this size always have room: there are no more than the connections
ALL_BYTES = 1 << 26  # of all larger bodies whose requests are being read or answered
LINGER_SECONDS = 2.0  # for what a client still sends of a body that was refused


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
            return await refusal(scope, receive, _linger(receive, send))
        length = int(request.headers.get("content-length", "0"))
        size = length if length > SMALL_BYTES else 0
        if self._reserved + size > ALL_BYTES:
            refusal = _refuse(request, 503, "too many large requests at the same time: ask again later")
            return await refusal(scope, receive, _linger(receive, send))
        self._reserved += size
        try:
            await self.app(scope, receive, send)
        finally:
            self._reserved -= size

    @staticmethod
    def _find_refusal(request: Request) -> JSONResponse | None:
        length = request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers:
            return _refuse(request, 411, "a chunked body is not taken: send Content-Length")
        if request.headers.get("content-encoding", "identity") != "identity":
            return _refuse(request, 415, "a compressed body is not taken: send it without Content-Encoding")
        if not length.isdigit() or len(length) > 10 or int(length) > BODY_BYTES:
            return _refuse(request, 413, f"a body has {BODY_BYTES:,} bytes at most")
        return None


def _refuse(request: Request, status: int, message: str) -> JSONResponse:
    """In the form that the route's clients read: of KServe's, a sentence."""
    is_kserve = request.url.path.startswith("/v2/")
    refusal = JSONResponse({"error": message}, status) if is_kserve else refuse(status, message, "body", None)
    refusal.headers["Connection"] = "close"
    return refusal


def _linger(receive: Receive, send: Send) -> Send:
    """A `send` that reads and drops the rest of the body before the reply ends and the connection closes. A connection
    that is closed with unread bytes is reset, and a client that is still sending then loses the reply."""

    async def drop_body() -> None:
        while (await receive()).get("more_body"):
            pass

    async def send_last(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await send({**message, "more_body": True})
            with suppress(TimeoutError):
                await asyncio.wait_for(drop_body(), LINGER_SECONDS)
            message = {"type": "http.response.body"}
        await send(message)

    return send_last
