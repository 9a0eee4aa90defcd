"""Who may reach the Triton server and what for: addresses, TLS, and the two secrets of a home folder.

By default the server listens on loopback, in the clear. Other machines can be given gRPC, the page of metrics (in the
clear) and, on request, HTTP (`serving.http.gateway`).

    .control-token   loads and unloads models, registers shared memory, sets traces and logs: `model deploy`, `serve`
    .inner-token     asks `revelator`, `retriever` and `generator`: the executor, and the smoke questions of a deploy

Each secret is drawn when it is first needed, into a file that only its owner may read.
"""

from __future__ import annotations

import ipaddress
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from revelator.channels import TOKEN_HEADER, Tls
from revelator.errors import ConfigError
from revelator.files import write_bytes_once

LOOPBACK = "127.0.0.1"
CONTROL_PROTOCOLS = "model-repository,shared-memory,trace,logging"  # protocols that change the server
RESTRICTED = "This protocol is restricted"  # Triton's words for a token that is missing or wrong
TLS_HINT = "--tls-cert FILE --tls-key FILE --tls-ca FILE"


def choose_tls(cert: Path | None, key: Path | None, ca: Path | None, name: str | None) -> Tls | None:
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
        if self.mutual and not self.tls:
            raise ConfigError("clients' certificates need TLS", where="--tls-mutual", hint=TLS_HINT)
        if self.tls:
            self.tls.credentials()

    def build_options(self, token: str) -> dict[str, str]:
        """The options of the server's command line. Only who sends `token` can change the server. Triton 2.51 takes the
        token as an option alone; `TritonServer` removes it from the command line as soon as the server is live."""
        said = f"{CONTROL_PROTOCOLS}:{TOKEN_HEADER}=Bearer {token}"
        options = {"grpc-address": self.host, "grpc-restricted-protocol": said}
        if self.tls:
            options["grpc-use-ssl-mutual" if self.mutual else "grpc-use-ssl"] = "true"
            options["grpc-server-cert"], options["grpc-server-key"] = str(self.tls.cert), str(self.tls.key)
            options["grpc-root-cert"] = str(self.tls.ca)
        return options


CLOSED = Exposure()
Name = Literal[".control-token", ".inner-token"]
CONTROL: Name = ".control-token"
INNER: Name = ".inner-token"


def read_secret(home: Path, name: Name) -> str:
    """The secret in the file `name` of a home folder. It is drawn where there is none; if two processes draw it at the
    same time, both get the same.

    Raises ConfigError for a file that others may read or that holds no secret, and for a folder that cannot be written.
    """
    path = home / name
    try:
        if not path.exists():
            write_bytes_once(path, f"{secrets.token_hex(32)}\n".encode())
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"no secret can be kept here: {error}", where=str(path)) from error
    if stat.S_IMODE(mode) & 0o077:
        hint = f"others may have read it: rm {path}, and start `revelator serve` again, which draws another"
        raise ConfigError(f"the file has mode {stat.S_IMODE(mode):o}, not 600", where=str(path), hint=hint)
    if len(text) < 32:
        hint = f"rm {path}, and start `revelator serve` again, which draws another"
        raise ConfigError("the file holds no secret", where=str(path), hint=hint)
    return text
