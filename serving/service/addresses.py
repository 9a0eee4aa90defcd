"""Where the service listens: ports and TLS. By default it listens on loopback, in the clear."""

from __future__ import annotations

import ipaddress
import random
import socket
import ssl
from dataclasses import asdict, dataclass
from pathlib import Path

from revelator.channels import Tls
from revelator.errors import ConfigError
from serving.home.config import ServiceFile
from serving.http.callers import Clients, read_clients
from serving.http.issuer import TokenIssuer, read_keys

LOOPBACK = "127.0.0.1"
DRAWN = range(20_000, 32_768)  # below those that Linux gives to connections, which take one before it is listened on
PORTS_HINT = "--ports 8000,8001 (HTTP, gRPC), or --ports auto"
TLS_HINT = "tls: {cert: FILE, key: FILE, ca: FILE}"
NOBODY = Clients()


@dataclass(frozen=True)
class Ports:
    http: int = 8000
    grpc: int = 8001

    def find_taken(self) -> list[int]:
        """The ports that another process listens on."""
        return [port for port in asdict(self).values() if not _is_free(port)]


def read_ports(text: str) -> Ports:
    """`8000,8001` (HTTP, gRPC), or `auto`: those when they are free, else any two that are. Raises ConfigError."""
    if text == "auto":
        return Ports() if not Ports().find_taken() else _find_free_ports()
    try:
        http, grpc = map(int, text.split(","))
    except ValueError:
        raise ConfigError(f"ports are two numbers or auto, not {text!r}", where="--ports", hint=PORTS_HINT) from None
    ports = Ports(http, grpc)
    if wrong := [number for number in (http, grpc) if not 0 < number < 65536]:
        raise ConfigError(f"a port is a number from 1 to 65535, not {wrong[0]}", where="--ports", hint=PORTS_HINT)
    if http == grpc:
        raise ConfigError(f"port {http} is named twice", where="--ports", hint=PORTS_HINT)
    if taken := ports.find_taken():
        raise ConfigError(f"port {taken[0]} is in use", where="--ports", hint="name other ports, or --ports auto")
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _find_free_ports() -> Ports:
    """Two that are drawn: others that start while the models of this service are opened draw others."""
    free = filter(_is_free, random.SystemRandom().sample(DRAWN, len(DRAWN)))
    return Ports(next(free), next(free))


@dataclass(frozen=True)
class Exposure:
    """`tls` are the service's certificate and key, and the authority that signed it; with `mutual` clients must show a
    certificate of the same authority. `clients` are those that have tokens of their own, and `issuer` signs those
    of others. Raises ConfigError for what would leave the service open."""

    host: str = LOOPBACK
    tls: Tls | None = None
    mutual: bool = False
    clients: Clients = NOBODY
    issuer: TokenIssuer | None = None

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.host)
        except ValueError as error:
            raise ConfigError(f"not an IP address: {self.host!r}", where="--host", hint="--host 0.0.0.0") from error
        if self.mutual and not self.tls:
            raise ConfigError("clients' certificates need TLS", where="tls: mutual", hint=TLS_HINT)
        if self.issuer and self.clients.groups_header:
            hint = "leave out `callers` or groups_header: callers with a token could name their own groups"
            raise ConfigError("the header alone would say the groups", where="callers", hint=hint)
        if self.tls:
            _check_tls(self.tls)


def _check_tls(tls: Tls) -> None:
    """Raises ConfigError that names the file that cannot be read, or is not what it should be."""
    tls.credentials()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_verify_locations(tls.ca)
    except ssl.SSLError as error:
        raise ConfigError("no certificate of an authority (PEM)", where=str(tls.ca), hint=TLS_HINT) from error
    try:
        assert tls.cert
        context.load_cert_chain(tls.cert, tls.key)
    except ssl.SSLError as error:
        raise ConfigError("no certificate with its key (PEM)", where=f"{tls.cert}, {tls.key}", hint=TLS_HINT) from error


def open_exposure(settings: ServiceFile) -> Exposure:
    """What the file says. Raises ConfigError as `Exposure` and `read_clients` do, and for a file of an issuer's keys
    that holds none."""
    clients = read_clients(settings.clients) if settings.clients else NOBODY
    if settings.callers and not settings.callers.is_web:
        read_keys(_read(settings.callers.jwks), settings.callers.jwks)
    files = settings.tls
    tls = Tls(files.ca, files.cert, files.key, files.name) if files else None
    return Exposure(settings.host, tls, bool(files and files.mutual), clients, settings.callers)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        hint = "callers: {jwks: FILE or URL}"
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, hint=hint) from error


CLOSED = Exposure()
