"""Who may ask, and who may change versions: the bearer tokens of a service.

`.control-token` of the home folder loads and unloads versions (`model deploy`). It is drawn when it is first needed,
into a file that only its owner may read.
"""

from __future__ import annotations

import secrets
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from revelator.channels import AUTHORIZATION, TOKEN
from revelator.errors import ConfigError
from revelator.files import write_bytes_once

CONTROL = ".control-token"


def read_control_token(home: Path) -> str:
    """The secret in `.control-token` of a home folder. It is drawn where there is none; if two processes draw it at the
    same time, both get the same.

    Raises ConfigError for a file that others may read or that holds no secret, and for a folder that cannot be written.
    """
    path = home / CONTROL
    try:
        if not path.exists():
            write_bytes_once(path, f"{secrets.token_hex(32)}\n".encode())
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"no secret can be kept here: {error}", where=str(path)) from error
    hint = f"rm {path}, and start `revelator serve` again, which draws another"
    if stat.S_IMODE(mode) & 0o077:
        message = f"others may have read it: the file has mode {stat.S_IMODE(mode):o}, not 600"
        raise ConfigError(message, where=str(path), hint=hint)
    if len(text) < 32:
        raise ConfigError("the file holds no secret", where=str(path), hint=hint)
    return text


@dataclass(frozen=True)
class Tokens:
    """`control` changes versions, and lets in for all else; `client`, if there is one, must be sent with each call."""

    control: str
    client: str | None = None

    def may_control(self, metadata: Any) -> bool:
        return _is_sent(self.control, metadata)

    def may_ask(self, metadata: Any) -> bool:
        return self.client is None or _is_sent(self.client, metadata) or self.may_control(metadata)


def _is_sent(token: str, metadata: Any) -> bool:
    given = dict(metadata or ()).get(AUTHORIZATION, "")
    return secrets.compare_digest(str(given).encode(), f"Bearer {token}".encode())


class Access(grpc.aio.ServerInterceptor):
    """Refuses calls without the token, before anything of their messages is read."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or self._tokens.may_ask(details.invocation_metadata):
            return handler

        async def refuse(asked: Any, context: Any) -> None:
            if handler.request_streaming:  # a client that cannot send its request any more is told of that alone
                await anext(aiter(asked), None)
            message = f"the token is missing or wrong: send authorization: Bearer …, as clients do of {TOKEN}"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)
