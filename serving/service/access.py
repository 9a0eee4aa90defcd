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

from revelator.channels import AUTHORIZATION
from revelator.errors import ConfigError, ServingError, Unauthenticated
from revelator.files import write_bytes_once
from revelator.wire import choose_grpc_code, write_error
from serving.http.callers import EVERYBODY, Callers

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
    """`control` changes versions, and lets in for all else, without groups; `callers` are who else is let in."""

    control: str
    callers: Callers = EVERYBODY

    def may_control(self, metadata: Any) -> bool:
        given = dict(metadata or ()).get(AUTHORIZATION, "")
        return secrets.compare_digest(str(given).encode(), f"Bearer {self.control}".encode())

    async def find_groups(self, metadata: Any) -> frozenset[str]:
        """What `Callers.find_groups` finds and raises."""
        try:
            return await self.callers.find_groups((str(name), str(value)) for name, value in metadata or ())
        except Unauthenticated:
            if self.may_control(metadata):
                return frozenset()
            raise


class Access(grpc.aio.ServerInterceptor):
    """Refuses calls of who is not let in, before anything of their messages is read."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        try:
            await self._tokens.find_groups(details.invocation_metadata)
            return handler
        except ServingError as error:
            code, message = grpc.StatusCode[choose_grpc_code(error)], write_error(error)

        async def refuse(asked: Any, context: Any) -> None:
            if handler.request_streaming:  # a client that cannot send its request any more is told of that alone
                await anext(aiter(asked), None)
            await context.abort(code, message)

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)
