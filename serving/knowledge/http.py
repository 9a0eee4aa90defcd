"""One way out to the network: a client for one configured endpoint.

Only the configured address is ever asked: a redirect is refused, so that no other address can be reached through an
answer. Replies are read up to `MAX_BYTES` and never inflated: 1 KB of nested gzip can hold 1 GB. A key travels in a
header, is never part of an address, and is blanked out of every message.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any
from urllib.parse import unquote

import httpx

from revelator.endpoints import check_url, mask_key
from revelator.errors import DeadlineExceeded, Unavailable

MAX_BYTES = 8_000_000
MESSAGE_CHARACTERS = 200  # of a server's own error text
MORE_TIME = "raise its `timeout` in the file of sources"
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

    async def post_form(self, fields: Mapping[str, str]) -> bytes:
        return await self._call("POST", data=dict(fields))

    def without_key(self, text: str) -> str:
        return mask_key(text, self._key)

    async def close(self) -> None:
        await self._client.aclose()

    async def _call(self, method: str, **content: Any) -> bytes:
        try:
            async with self._client.stream(method, self.url, **content) as response:
                return await self._read(response)
        except httpx.TimeoutException as error:
            message = f"no answer within {self.timeout:g} s, the timeout of this source"
            raise DeadlineExceeded(message, where=self.url, hint=MORE_TIME) from error
        except httpx.HTTPError as error:
            message = self.without_key(f"no answer: {error or type(error).__name__}")
            raise Unavailable(message, where=self.url) from error

    async def _read(self, response: httpx.Response) -> bytes:
        if response.is_redirect:
            message = f"refused to follow a redirect to {self._quote(unquote(response.headers['location']))}"
            hint = "configure that address if it is meant"
            raise Unavailable(message, where=self.url, hint=hint, final=True)
        body, status = bytearray(), response.status_code
        if response.headers.get("content-encoding", "identity") == "identity":
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise Unavailable(f"the reply is longer than {MAX_BYTES:,} bytes", where=self.url, final=True)
        elif status == 200:
            raise Unavailable("the reply is compressed, which was not asked for", where=self.url, final=True)
        if status == 200:
            return bytes(body)
        said = self._quote(body[: 4 * MESSAGE_CHARACTERS].decode(errors="replace"))
        final = status not in RETRYABLE
        hint = "check the address, and the key if it wants one" if final else "try again later"
        raise Unavailable(f"the endpoint answered {status}: {said}", where=self.url, hint=hint, final=final)

    def _quote(self, text: str) -> str:
        """The beginning of a server's own text, on one line and without the key."""
        return " ".join(self.without_key(text)[:MESSAGE_CHARACTERS].split())
