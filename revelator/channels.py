"""Channels to servers that speak KServe's protocol over gRPC: the service, and Triton behind it.

A service that speaks TLS is reached with files named in the environment, or with a `Tls` handed to the client:

    REVELATOR_TLS_CA     certificate of the authority that signed the server's
    REVELATOR_TLS_CERT   this side's own certificate and
    REVELATOR_TLS_KEY    its key, where the server wants to know its clients (mutual TLS)
    REVELATOR_TLS_NAME   the name in the server's certificate, where the address is another
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import InferenceServerClientPlugin

from revelator import spans
from revelator.endpoints import check_key
from revelator.errors import ConfigError

_LOOPBACK = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\]):")
_FILES = {"ca": "REVELATOR_TLS_CA", "cert": "REVELATOR_TLS_CERT", "key": "REVELATOR_TLS_KEY"}
_NAME = "REVELATOR_TLS_NAME"
TOKEN = "REVELATOR_TOKEN"  # what a service asks of its clients, and a client sends, where the environment names it
AUTHORIZATION = "authorization"
LONGEST_PAUSE_MS = 2_000  # between attempts to connect again; gRPC's own is two minutes


@dataclass(frozen=True)
class Tls:
    """PEM files; `cert` and `key` go together. `name`: what the server's certificate names instead of its address."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    name: str | None = None

    @classmethod
    def from_environment(cls) -> Tls | None:
        """Reads the environment; None without `REVELATOR_TLS_CA`, which means no TLS."""
        files = {name: Path(os.environ[key]) for name, key in _FILES.items() if os.environ.get(key)}
        if not files:
            return None
        if "ca" not in files or ("cert" in files) != ("key" in files):
            hint = f"{_FILES['ca']} alone, or together with {_FILES['cert']} and {_FILES['key']}"
            raise ConfigError("a part of the TLS files is not named", where="environment", hint=hint)
        return cls(**files, name=os.environ.get(_NAME) or None)

    def to_environment(self) -> dict[str, str]:
        """Returns the variables that `from_environment` reads."""
        files = {key: str(value) for name, key in _FILES.items() if (value := getattr(self, name))}
        return files | ({_NAME: self.name} if self.name else {})

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises ConfigError that names the file that cannot be read."""
        ca, key, cert = (_read(path) if path else None for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


def make_channel_arguments(url: str, tls: Tls | None) -> dict[str, Any]:
    """The arguments of a tritonclient gRPC client for `url` (host:port): messages of any size, and to this machine
    itself no proxy, which gRPC would take from `http_proxy`. Raises ConfigError for an address that is empty or has a
    web address's scheme."""
    _check_address(url)
    arguments: list[tuple[str, int | str]] = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_reconnect_backoff_ms", LONGEST_PAUSE_MS),
    ]
    if _LOOPBACK.match(url):
        arguments.append(("grpc.enable_http_proxy", 0))
    if tls and tls.name:
        arguments.append(("grpc.ssl_target_name_override", tls.name))
    return {"url": url, "channel_args": arguments, "creds": tls.credentials() if tls else None}


def _check_address(url: str) -> None:
    if not url.strip():
        hint = "give host:port of the server's gRPC, such as 127.0.0.1:8001"
        raise ConfigError("the server's address is empty", where="address", hint=hint)
    if scheme := re.match(r"https?://", url, re.IGNORECASE):
        tls = f"; for TLS name the authority's certificate in {_FILES['ca']}" if scheme[0].lower() == "https://" else ""
        hint = f"leave out {scheme[0]}: the address is host:port of the server's gRPC port{tls}"
        raise ConfigError("this is a web address", where=url, hint=hint)


def read_token() -> str | None:
    """The token that the environment names. Raises ConfigError for one that no header can hold."""
    return check_key(os.environ[TOKEN], TOKEN) if TOKEN in os.environ else None


class Headers(InferenceServerClientPlugin):
    """What goes along with each request of a client: a bearer token, and the span around it where spans are on."""

    def __init__(self, token: str | None) -> None:
        self._own = {AUTHORIZATION: f"Bearer {token}"} if token else {}

    def __call__(self, request: Any) -> None:
        request.headers.update(self._own | spans.make_headers())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
