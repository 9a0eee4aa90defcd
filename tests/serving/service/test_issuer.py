"""Callers with tokens that an issuer has signed: which let in, over gRPC and HTTP, and what their callers may read."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from revelator.client import Client
from revelator.errors import ConfigError, Unauthenticated, Unavailable
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServiceFile
from serving.home.configure import configure
from serving.http import issuer as issuers
from serving.http.issuer import SignedTokens, TokenIssuer
from serving.service.addresses import Exposure, open_exposure
from serving.service.grpc_front import METADATA_BYTES
from tests.chat_server import running
from tests.loopback import find_port, serving
from tests.service_thread import serve_in_thread
from tests.serving.service.test_permissions import QUESTION, SECRET, WAIT, Archive, read, write_archive

ISSUER, AUDIENCE = "https://login.example.com/acme", "revelator"
KEY, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))
CURVE, SMALL = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 1024)
ASKED = {"question": QUESTION, "strategy": "single"}
Keys = dict[str, Any]


def spell(keys: Keys) -> bytes:
    """The JSON Web Key Set of the public halves of the keys, by their ids."""
    entries = []
    for id, key in keys.items():
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        entries.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": id, "use": "sig"})
    return json.dumps({"keys": entries}).encode()


class IssuerServer(ThreadingHTTPServer):
    """Shows the public halves of `keys`, and counts who asks for them."""

    def __init__(self, keys: Keys, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Certs)
        self.keys, self.asked, self.status = keys, 0, 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/certs"


class Certs(BaseHTTPRequestHandler):
    server: IssuerServer

    def do_GET(self) -> None:
        self.server.asked += 1
        body = spell(self.server.keys)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def certs() -> Iterator[IssuerServer]:
    with serving(IssuerServer({"first": KEY, "curve": CURVE, "small": SMALL})) as server:
        yield server


def sign(key: Any = KEY, id: str | None = "first", algorithm: str = "RS256", **claims: Any) -> str:
    """A token that lets in, unless `claims` say otherwise; a claim of None is left out."""
    given = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600, "groups": ["hr"], **claims}
    given = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(given, key, algorithm, {"kid": id} if id else None)


def forge_with_public_key() -> str:
    """A token whose HMAC has the issuer's public key as its secret, which everybody knows. PyJWT would not make it."""
    [head, body, _] = sign().split(".")
    head = base64url_encode(json.dumps({"alg": "HS256", "kid": "first"}).encode()).decode()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    secret = KEY.public_key().public_bytes(serialization.Encoding.PEM, form)
    signature = hmac.digest(secret, f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64url_encode(signature).decode()}"


def change_groups(token: str) -> str:
    """The token with other claims under the same signature."""
    head, _, signature = token.split(".")
    claims = {**jwt.decode(token, options={"verify_signature": False}), "groups": ["board"]}
    return f"{head}.{base64url_encode(json.dumps(claims).encode()).decode()}.{signature}"


LET_IN = {
    "RS256": lambda: sign(),
    "ES256": lambda: sign(CURVE, "curve", "ES256"),
    "one audience of several": lambda: sign(aud=["other", AUDIENCE]),
    "hundreds of groups": lambda: sign(groups=[*(f"team-{n:04}" for n in range(900)), "hr"]),
    "clocks differ by ten seconds": lambda: sign(exp=time.time() - 10, nbf=time.time() + 10),
}
REFUSED = {
    "expired": (lambda: sign(exp=time.time() - 60), "has expired"),
    "early": (lambda: sign(nbf=time.time() + 60), "not valid yet"),
    "other audience": (lambda: sign(aud="wiki"), "another audience"),
    "other issuer": (lambda: sign(iss="https://evil.example.com"), "another issuer"),
    "no end": (lambda: sign(exp=None), "exp, iss or aud is missing"),
    "no audience": (lambda: sign(aud=None), "exp, iss or aud is missing"),
    "another's key": (lambda: sign(OTHER), "signature is wrong"),
    "changed": (lambda: change_groups(sign()), "signature is wrong"),
    "unknown key": (lambda: sign(OTHER, "second"), "no key such as the token names"),
    "no key": (lambda: sign(id=None), "does not name its key"),
    "alg none": (lambda: sign(None, algorithm="none"), "not signed with RS256 or ES256"),
    "HMAC with the public key": (lambda: forge_with_public_key(), "not signed with RS256 or ES256"),
    "RS512": (lambda: sign(algorithm="RS512"), "not signed with RS256 or ES256"),
    "short key": (lambda: sign(SMALL, "small"), "key of its issuer is too short"),
    "groups are no list": (lambda: sign(groups="hr"), "claim of groups is no list"),
    "no JSON": (lambda: "a.b.c", "malformed"),
    "deep JSON": (lambda: f"{base64url_encode(b'[' * 40_000).decode()}.e30.c", "malformed"),
    "opaque": (lambda: "opaque", "missing or wrong"),
}


def name_issuer(jwks: str, **more: str) -> TokenIssuer:
    return TokenIssuer(issuer=ISSUER, audience=AUDIENCE, jwks=jwks, **more)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    folder = tmp_path_factory.mktemp("signed")
    write_archive(folder)
    with running() as reader, serving(IssuerServer({"first": KEY, "curve": CURVE, "small": SMALL})) as certs:
        reader.replies = [read]
        asked = {"index": folder / "index", "generator": reader.url, "generator_model": "m"}
        config = configure(folder / "home", **asked, text=False, judge="none")
        exposure = Exposure(issuer=name_issuer(certs.url))
        with serve_in_thread(folder / "home", config, exposure) as (_, service):
            yield Archive(service.grpc, service.http, reader, folder)


@pytest.mark.parametrize("kind", LET_IN)
def test_a_token_of_the_issuer_reads_what_its_groups_may_over_grpc_and_http(served: Archive, kind: str) -> None:
    token = LET_IN[kind]()
    with served.client(token) as client, served.page(token) as page:
        assert client.ask(QUESTION, strategy="single").answers == ("Bo Zwillinger",)
        assert [*client.stream(QUESTION, strategy="single")][-1].kind == "finished"
        assert "Bo Zwillinger" in page.post("/api/runs", json=ASKED).text


@pytest.mark.parametrize("groups", [None, [], ["press"], ["h r", "hr, board"]])
def test_a_token_without_the_group_reads_what_everybody_may(served: Archive, groups: list[str] | None) -> None:
    token = sign(groups=groups)
    with served.client(token) as client, served.page(token) as page:
        trace = client.ask("Where is the archive?", strategy="single").trace
        assert {place.file for node in trace.nodes for place in node.documents} == {"archive.md"}
        assert SECRET not in page.post("/api/runs", json=ASKED).text.lower()


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits long")
@pytest.mark.parametrize("kind", REFUSED)
def test_another_token_is_refused_over_grpc_and_http_with_the_reason_and_no_part_of_it(
    served: Archive, kind: str
) -> None:
    make, reason = REFUSED[kind]
    token = make()
    with served.page(token) as page:
        reply = page.post("/api/runs", json=ASKED)
        assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert reason in reply.json()["error"]["message"]
    told = reply.text
    if len(token) < METADATA_BYTES:
        with served.client(token) as client, pytest.raises(Unauthenticated, match=reason) as refused:
            client.ask(QUESTION)
        told += str(refused.value)
    assert not [part for part in token.split(".") if len(part) > 10 and part in told]
    assert not [id for id in ("second", "first") if id in told]


def test_nobody_is_let_in_without_a_token_and_the_page_takes_no_documents(served: Archive) -> None:
    with httpx.Client(base_url=served.http, trust_env=False) as nobody:
        assert nobody.post("/api/runs", json=ASKED).status_code == 401
        assert nobody.get("/health").status_code == 200
    with served.page(sign()) as page:
        assert page.get("/api/documents").status_code == 404
    with Client(served.grpc, timeout=WAIT) as client, pytest.raises(Unauthenticated, match="missing or wrong"):
        client.ask(QUESTION)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_keys_are_kept_and_read_again_for_an_unknown_one_but_not_by_each_stranger(
    certs: IssuerServer, clock: Clock
) -> None:
    tokens = SignedTokens(name_issuer(certs.url), clock)
    for _ in range(3):
        assert await tokens.find_groups(sign()) == {"hr"}
    assert certs.asked == 1
    certs.keys = {"second": OTHER}
    for _ in range(3):
        with pytest.raises(Unauthenticated, match="no key"):
            await tokens.find_groups(sign(OTHER, "second"))
    assert certs.asked == 1, "strangers do not flood the issuer"
    clock.now += issuers.PAUSE_SECONDS
    assert await tokens.find_groups(sign(OTHER, "second")) == {"hr"}
    assert certs.asked == 2
    with pytest.raises(Unauthenticated, match="no key"):
        await tokens.find_groups(sign())  # the first was withdrawn


async def test_a_key_that_was_withdrawn_counts_until_the_keys_are_read_again(certs: IssuerServer, clock: Clock) -> None:
    tokens = SignedTokens(name_issuer(certs.url), clock)
    assert await tokens.find_groups(sign()) == {"hr"}
    certs.keys = {"curve": CURVE}
    clock.now += issuers.FRESH_SECONDS - 1
    assert await tokens.find_groups(sign()) == {"hr"}
    clock.now += 1
    with pytest.raises(Unauthenticated, match="no key"):
        await tokens.find_groups(sign())


async def test_while_the_issuer_is_down_its_keys_count_for_an_hour(certs: IssuerServer, clock: Clock) -> None:
    tokens = SignedTokens(name_issuer(certs.url), clock)
    certs.status = 500
    with pytest.raises(Unavailable, match="issuer cannot be read"):
        await tokens.find_groups(sign())
    certs.status, clock.now = 200, issuers.PAUSE_SECONDS
    assert await tokens.find_groups(sign()) == {"hr"}
    certs.status = 500
    clock.now += issuers.LONGEST_SECONDS
    assert await tokens.find_groups(sign()) == {"hr"}
    clock.now += 1
    with pytest.raises(Unavailable, match="issuer cannot be read"):
        await tokens.find_groups(sign())


async def test_keys_may_stand_in_a_file_and_groups_in_any_claim(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(spell({"first": KEY}))
    tokens = SignedTokens(name_issuer(str(path), groups_claim="https://acme.example/roles"), clock)
    assert await tokens.find_groups(sign(**{"https://acme.example/roles": ["board"]})) == {"board"}
    path.write_bytes(spell({"second": OTHER}))
    clock.now += issuers.FRESH_SECONDS
    with pytest.raises(Unauthenticated, match="no key"):
        await tokens.find_groups(sign())


def test_a_service_whose_issuer_is_down_says_so_over_both_ways_and_lets_nobody_in(
    served: Archive, tmp_path: Path
) -> None:
    release_embedded_base(tmp_path)
    asked = {"index": served.folder / "index", "generator": served.reader.url, "generator_model": "m"}
    config = configure(tmp_path, **asked, text=False, judge="none")
    exposure = Exposure(issuer=name_issuer(f"http://127.0.0.1:{find_port()}/certs"))
    with serve_in_thread(tmp_path, config, exposure) as (_, service):
        down = Archive(service.grpc, service.http, served.reader, tmp_path)
        with down.page(sign()) as page:
            reply = page.post("/api/runs", json=ASKED)
        assert reply.status_code == 503 and "issuer cannot be read" in reply.text
        with down.client(sign()) as client, pytest.raises(Unavailable, match="issuer cannot be read"):
            client.ask(QUESTION)


@pytest.mark.parametrize(
    ("jwks", "said"),
    [
        ("http://login.example.com/certs", "public keys come over https"),
        ("https://user:secret@login.example.com/certs", "no user, query or fragment"),
        ("missing.json", "cannot be read"),
        ("empty.json", "no key signs with RS256 or ES256"),
        ("private.json", "a private key stands there"),
        ("text.json", "no set of keys"),
        ("secret.json", "no key signs with RS256 or ES256"),
    ],
)
def test_keys_that_cannot_serve_end_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jwks: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    encryption = {**RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "a", "use": "enc"}
    Path("empty.json").write_text(json.dumps({"keys": [encryption]}))
    Path("private.json").write_text(json.dumps({"keys": [{**RSAAlgorithm.to_jwk(KEY, as_dict=True), "kid": "a"}]}))
    Path("text.json").write_text("keys")
    Path("secret.json").write_text(json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}]}))
    with pytest.raises(ConfigError, match=said) as refused:
        open_exposure(ServiceFile.model_validate({"callers": {"issuer": "i", "audience": "a", "jwks": jwks}}))
    assert "secret@" not in str(refused.value)


def test_a_header_of_groups_and_an_issuer_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "clients.yaml").write_text("groups_header: X-Groups\n")
    (tmp_path / "keys.json").write_bytes(spell({"first": KEY}))
    callers = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(tmp_path / "keys.json")}
    with pytest.raises(ConfigError, match="header alone") as refused:
        open_exposure(ServiceFile.model_validate({"clients": tmp_path / "clients.yaml", "callers": callers}))
    assert refused.value.where == "callers"
