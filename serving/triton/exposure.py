"""Where the server listens and whom it lets in: addresses, TLS, the token of model control.

On loopback in the clear by default. What is open to others is gRPC, the page of metrics (in the clear) and, where it is
asked for, HTTP (`serving.http.gateway`).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from revelator.endpoints import TOKEN_HEADER, Tls
from revelator.errors import ConfigError

LOOPBACK = "127.0.0.1"
CONTROL = "model-repository,shared-memory,trace,logging"  # protocols that change the server
TLS_HINT = "--tls-cert FILE --tls-key FILE --tls-ca FILE"


def server_tls(cert: Path | None, key: Path | None, ca: Path | None, name: str | None) -> Tls | None:
    """All three files, or none. Raises ConfigError."""
    if cert and key and ca:
        return Tls(ca, cert, key, name)
    if cert or key or ca:
        raise ConfigError("TLS needs a certificate, its key and its authority's", where="--tls-cert", hint=TLS_HINT)
    return None


@dataclass(frozen=True)
class Exposure:
    """`tls` are the server's certificate and key, and the authority that signed it; with `mutual` clients must show a
    certificate of the same authority. Raises ConfigError for what would leave the server open."""

    host: str = LOOPBACK
    tls: Tls | None = None
    mutual: bool = False

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.host)
        except ValueError as error:
            raise ConfigError(f"not an IP address: {self.host!r}", where="--host", hint="--host 0.0.0.0") from error
        if self.tls and not (self.tls.cert and self.tls.key):
            raise ConfigError("TLS needs a certificate, its key and its authority's", where="--tls-cert", hint=TLS_HINT)
        if self.mutual and not self.tls:
            raise ConfigError("clients' certificates need TLS", where="--tls-mutual", hint=TLS_HINT)
        if self.tls:
            self.tls.credentials()

    def options(self, token: str) -> dict[str, str]:
        """The server's own options. Whoever does not say `token` cannot change the server. Triton 2.51 takes the token
        as an option alone; `TritonServer` takes it out of the command line as soon as the server is live."""
        said = f"{CONTROL}:{TOKEN_HEADER}=Bearer {token}"
        options = {"grpc-address": self.host, "grpc-restricted-protocol": said}
        if self.tls:
            options["grpc-use-ssl-mutual" if self.mutual else "grpc-use-ssl"] = "true"
            options["grpc-server-cert"], options["grpc-server-key"] = str(self.tls.cert), str(self.tls.key)
            options["grpc-root-cert"] = str(self.tls.ca)
        return options

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """For the block, this process and the models that it starts reach the server with the server's own files."""
        if not self.tls:
            yield
            return
        before = dict(os.environ)
        os.environ.update(self.tls.to_environment())
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


CLOSED = Exposure()
