"""One way out to the network: a client for one configured endpoint.

Only the configured origin (scheme, host and port) is ever asked, and only with the configured path. A redirect is
followed within that origin; any other is refused before a connection is opened, so neither a private address nor any
other can be reached through an answer. Replies are read up to `MAX_BYTES` and never inflated: 1 KB of nested gzip can
hold 1 GB. A key travels in a header, is never part of an address, and is blanked out of every message.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import httpx

from revelator.endpoints import check_url, mask_key
from revelator.errors import DeadlineExceeded, Unavailable

MAX_BYTES = 8_000_000
MAX_REDIRECTS = 3
MESSAGE_CHARACTERS = 200  # of a server's own error text
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})


class HttpEndpoint:
    """`url` is http or https, without user, query or fragment. `timeout` is in seconds and covers one call.

    Raises ConfigError for another url; calls raise Unavailable and DeadlineExceeded.
    """

    def __init__(
        self, url: str, *, timeout: float, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.url = check_url(url)
        self.timeout = timeout
        self._key = key
        agent = {"User-Agent": f"revelator/{metadata.version('revelator')}", "Accept-Encoding": "identity"}
        sent = {**agent, **(headers or {})}
        self._client = httpx.AsyncClient(timeout=timeout, headers=sent, follow_redirects=False, trust_env=False)

    async def get(self, parameters: Mapping[str, str]) -> bytes:
        return await self._call("GET", params=dict(parameters))

    async def post_json(self, body: Any) -> bytes:
        return await self._call("POST", json=body)

    async def post_form(self, fields: Mapping[str, str]) -> bytes:
        return await self._call("POST", data=dict(fields))

    def without_key(self, text: str) -> str:
        return mask_key(text, self._key)

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, **content: Any) -> bytes:
        request = self._client.build_request(method, self.url, **content)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                status, location, body = await self._send(request)
                if location is None:
                    return self._accept(status, body)
                request.url = self._resolve_redirect(request.url, location)
        except httpx.TimeoutException as error:
            raise DeadlineExceeded(f"no answer within {self.timeout:g} s", where=self.url) from error
        except httpx.HTTPError as error:
            message = self.without_key(f"no answer: {error or type(error).__name__}")
            raise Unavailable(message, where=self.url) from error
        raise Unavailable(f"more than {MAX_REDIRECTS} redirects", where=self.url, final=True)

    async def _send(self, request: httpx.Request) -> tuple[int, str | None, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            if response.is_redirect:
                return response.status_code, response.headers["location"], b""
            if response.headers.get("content-encoding", "identity") != "identity":
                if response.status_code != 200:  # the status says enough
                    return response.status_code, None, b""
                raise Unavailable("the reply is compressed, which was not asked for", where=self.url, final=True)
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise Unavailable(f"the reply is longer than {MAX_BYTES:,} bytes", where=self.url, final=True)
            return response.status_code, None, bytes(body)
        finally:
            await response.aclose()

    def _accept(self, status: int, body: bytes) -> bytes:
        if status == 200:
            return body
        said = self.without_key(body[: 4 * MESSAGE_CHARACTERS].decode(errors="replace"))[:MESSAGE_CHARACTERS]
        final = status not in RETRYABLE
        hint = "check the address, and the key if it wants one" if final else "try again later"
        said = " ".join(said.split())
        raise Unavailable(f"the endpoint answered {status}: {said}", where=self.url, hint=hint, final=final)

    def _resolve_redirect(self, at: httpx.URL, location: str) -> httpx.URL:
        try:
            target = at.join(location)
        except (httpx.InvalidURL, ValueError) as error:
            raise Unavailable("redirected to what is no address", where=self.url, final=True) from error
        if _find_origin(target) != _find_origin(at):
            what = "a private address" if is_private(target.host) else "another server"
            hint = "configure that address if it is meant"
            message = self.without_key(f"refused to follow a redirect to {what}: {target.scheme}://{target.host}")
            raise Unavailable(message, where=self.url, hint=hint, final=True)
        return target


def is_private(host: str) -> bool:
    """A literal address that is not on the public internet, or a name that means this machine."""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def _find_origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
