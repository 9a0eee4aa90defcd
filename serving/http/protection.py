"""What stands before every HTTP route: whose requests are accepted, which bodies, and how errors are answered.

A page of another site can make a browser send requests to a server on loopback, and by rebinding a name of its own to
127.0.0.1 it can even read the replies. The first is refused by `Origin`, the second by `Host`. No reply carries a CORS
header. The page itself may load nothing but its own files, and may not put text into the document as markup.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from revelator import errors
from revelator.config import find_first_fault
from revelator.errors import InvalidRequest, RevelatorError, ServingError, Unauthenticated
from revelator.wire import write_error
from serving.http.callers import EVERYBODY, Callers
from serving.latency import count_values

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
GROUPS = "revelator.groups"  # of an ASGI scope
OPEN_TO_ALL = ("/", "/health")  # and /web/: the page asks for the token, health says that it is ready or not


class Protection:
    """ASGI middleware. `hosts` are the names that a request may use in its Host header; `by_address` accepts any
    IP address, too: a name is what a page can bind to another machine. The `callers` must be known for everything but
    the page's own files and `/health`, which a kubelet asks for; and, on this machine itself, the paths `probes`.
    `read_groups` of a request that it lets in gives the groups of who asks."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        callers: Callers = EVERYBODY,
        by_address: bool = False,
        probes: Collection[str] = (),
    ) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.callers = callers
        self.by_address = by_address
        self.probes = frozenset(probes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = await self._find_refusal(scope)
        await (refusal or self.app)(scope, receive, send_protected)

    def _is_known(self, name: str | None) -> bool:
        if name in self.hosts:
            return True
        try:
            return self.by_address and bool(ip_address(name or ""))
        except ValueError:
            return False

    async def _find_refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = _split_url(f"//{headers.get('host', '')}")
        if host is None or not self._is_known(host.hostname):
            return refuse(
                400, "this server is not called by that name", "host", "name it in serving.yaml: allow_hosts: [NAME]"
            )
        if "origin" in headers:
            origin = _split_url(headers["origin"])
            if origin is None or origin.netloc != headers["host"]:
                hint = "open the page at the server's own address; programs send no Origin"
                return refuse(403, "a page of another origin may not ask here", "origin", hint)
        path = scope["path"]
        if path in OPEN_TO_ALL or path.startswith("/web/"):
            return None
        if path in self.probes and is_loopback((scope.get("client") or ("",))[0]):
            return None
        try:
            scope[GROUPS] = await self.callers.find_groups(headers.items())
        except ServingError as error:
            code = "invalid_api_key" if isinstance(error, Unauthenticated) else error.where or "groups"
            return refuse(choose_status(error), error.message, code, error.hint)
        return None


def read_groups(request: Request) -> frozenset[str]:
    """The groups of who asks, as `Protection` found them."""
    groups: frozenset[str] = request.scope[GROUPS]
    return groups


def refuse(status: int, message: str, code: str, hint: str | None) -> JSONResponse:
    """One shape that both the page and OpenAI's clients read."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": code, "hint": hint}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": error}, status, headers)


def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's own, which all clients on it share."""
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def _split_url(url: str) -> SplitResult | None:
    """None for what is no URL, such as `http://[`."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


BODY_BYTES = 1 << 18  # a question and a plan, or a conversation
BODY_VALUES = 20_000  # a conversation of thousands of messages: no body of ours has more, each could be a fault
APART = 1 << 16  # bytes beyond which a body is read beside the event loop


class Body(BaseModel):
    """A body of JSON, or a part of one: no field is unknown, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


Read = TypeVar("Read", bound=BaseModel)


async def read_body(request: Request, kind: type[Read], most: int = BODY_BYTES) -> Read:
    """Raises InvalidRequest, whose `where` names the field, and HTTPException for a body that is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"the body has more than {most:,} bytes")
    try:
        return await asyncio.to_thread(_parse, body, kind) if len(body) > APART else _parse(body, kind)
    except ValidationError as error:
        field, reason = find_first_fault(error)
        raise InvalidRequest(reason, where=field or None) from error


def _parse(body: bytearray, kind: type[Read]) -> Read:
    """Counts the values before pydantic sees them: of 780,000 unknown keys it made 1.1 GB of faults."""
    try:
        count = count_values(from_json(body), BODY_VALUES)
    except ValueError as error:
        raise InvalidRequest(f"invalid JSON: {error}") from error
    if count > BODY_VALUES:
        raise InvalidRequest(f"the body holds more than {BODY_VALUES:,} values")
    return kind.model_validate_json(body)


_STATUSES: dict[type[RevelatorError], int] = {
    errors.ExpressionError: 400,
    errors.PlanError: 400,
    errors.InvalidRequest: 400,
    errors.Unauthenticated: 401,
    errors.DataError: 404,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.DeadlineExceeded: 504,
}
log = logging.getLogger(__name__)


def choose_status(error: RevelatorError) -> int:
    """500 for a fault of the server."""
    return _STATUSES.get(type(error), 500)


def make_retry_headers(error: RevelatorError) -> dict[str, str]:
    """When a server that is full may be asked again: whole seconds for HTTP, milliseconds for OpenAI's clients."""
    after = error.retry_after_ms if isinstance(error, errors.Overloaded) else None
    return {"Retry-After": str(math.ceil(after / 1000)), "retry-after-ms": f"{after:.0f}"} if after else {}


def write_error_json(error: RevelatorError, status: int) -> dict[str, Any]:
    """`revelator.wire.write_error` as plain values; what there is not has a code of its own."""
    value: dict[str, Any] = json.loads(write_error(error))
    return value | ({"code": "NOT_FOUND"} if status == 404 else {})


def describe_error(error: Exception) -> tuple[RevelatorError, int]:
    """The error to report and its status, for any exception: HTTP's own refusals (no such route) and faults of this
    program too."""
    if isinstance(error, RevelatorError):
        return error, choose_status(error)
    if isinstance(error, HTTPException):
        hint = "the page is at /; OpenAI's clients take this address with /v1" if error.status_code == 404 else None
        return InvalidRequest(error.detail, hint=hint), error.status_code
    if isinstance(error, ClientDisconnect):
        return InvalidRequest("the client left"), 400
    log.exception("unexpected error", exc_info=error)
    return ServingError(f"{type(error).__name__}: {error}", hint="the log holds the traceback"), 500
