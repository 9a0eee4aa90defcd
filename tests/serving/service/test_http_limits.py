"""What HTTP refuses, with which status and words; what would hold or end a server leaves this one as it was."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import psutil
import pytest

from serving.home.config import ServingConfig
from serving.http.kserve import BODY_BYTES, MODEL
from serving.service import http_front
from tests.conftest import Endpoint
from tests.serving.service.conftest import FAST, WAIT, Service, serve_in_thread
from tests.serving.service.test_http import body

INFER = f"{MODEL}/infer"
GROWTH = 50e6  # bytes that a refusal may leave with the process, where what was sent would take more


def given(question: object = FAST, options: object = "", **more: object) -> dict:
    tensors = {"question": question, "options": options}
    inputs = [{"name": n, "datatype": "BYTES", "shape": [1], "data": [value]} for n, value in tensors.items()]
    return {"inputs": inputs, **more}


@pytest.fixture
def url(service: Service) -> str:
    return service.running.http


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    """An honest client, which is answered after whatever a test has sent."""
    with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as http:
        yield http
        assert http.post(INFER, json=body(FAST, strategy="single")).json()["outputs"][0]["data"] == ["Orland"]


def post(http: httpx.Client, content: object, **headers: str) -> httpx.Response:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return http.post(INFER, content=text, headers={"Content-Type": "application/json", **headers})


def test_a_client_names_the_output_that_it_wants(http: httpx.Client) -> None:
    wanted = {"outputs": [{"name": "answer", "parameters": {"binary_data": False}}]}
    reply = post(http, {**body(FAST, strategy="single"), **wanted, "parameters": {"deadline_ms": 20_000}})
    assert [(tensor["name"], tensor["data"]) for tensor in reply.json()["outputs"]] == [("answer", ["Orland"])]


def test_it_says_that_it_lives_and_what_it_takes(http: httpx.Client, service: Service) -> None:
    assert http.get("/v2/health/live").status_code == 200
    assert [tensor["name"] for tensor in http.get(MODEL).json()["inputs"]] == ["question", "options"]
    with grpc.insecure_channel(service.url) as channel:  # as Kubernetes asks
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=WAIT) == b"\x08\x01"  # HealthCheckResponse, SERVING


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (given("  "), "empty"),
        (given("x" * 3_000), "question_characters"),
        (given(options="{"), "not JSON"),
        (given(options="[" * 50_000), "not JSON"),
        (given(options='{"deadline_ms": %s}' % ("9" * 5_000)), "not JSON"),
        (given(options='{"colour": 1}'), "options.colour"),
        (given(options='{"limits": 5}'), "options.limits"),
        (given(options='{"limits": {"steps": [[], []]}}'), "limit steps"),
        (given(options="[]"), "options"),
        (given(options='{"strategy": "guess"}'), "no strategy"),
        (given(options='{"strategy": 5}'), "strategy"),
        (given(options='{"reuse": {"nodes": 5}}'), "reuse"),
        (given(options='{"reuse": {"documents": [%s{}]}}' % ("{}," * 1_000_000)), "reuse"),
        (given(5), "a text is needed"),
        (given("\ud800"), ""),
        (given(parameters={"deadline_ms": -1}), "greater than 0"),
        (given(parameters={"deadline_ms": 1e999}), ""),
        (given(colour="red"), "colour"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [*given()["inputs"][:1], *given()["inputs"][:1]]}, "twice"),
        ({"inputs": given()["inputs"][1:]}, "missing"),
        ({"inputs": [{**given()["inputs"][0], "datatype": "FP32"}]}, "BYTES"),
        ({"inputs": [{**given()["inputs"][0], "shape": [2]}]}, ""),
        ([], "mapping"),
        (b"{", "JSON"),
        (b"\xff", ""),
        (b'{"inputs": ' + b"9" * 5_000 + b"}", ""),
        (b"[" * 1_000_000, "JSON"),
        ({f"k{n}": 0 for n in range(500_000)}, "more than 20,000 values"),
        ({"inputs": [{f"k{n}": 0 for n in range(500_000)}]}, "more than 20,000 values"),
        (b'{"inputs": [], "outputs": [' + b"{}," * 2_000_000 + b"{}]}", "more than 20,000 values"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_refused_with_a_sentence_and_a_type(http: httpx.Client, sent: object, says: str) -> None:
    reply = post(http, sent)
    value = reply.json()
    assert reply.status_code == 400 and says in value["error"] and value["detail"]["error"], reply.text[:1_000]


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/models/executor/load",
        "/v2/repository/models/executor/unload",
        "/v2/models/revelator/infer",
        "/v2/models/generator/infer",
        "/v2/models/executor/trace/setting",
        "/v2/systemsharedmemory/status",
        "/v2/logging",
    ],
)
def test_over_http_there_is_no_model_but_the_executor_and_nobody_changes_it(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404 and http.post(path, json={}).status_code in (404, 405)


def test_metrics_and_health_take_nothing_but_get(http: httpx.Client) -> None:
    assert [http.post(path, content=b"x").status_code for path in ("/metrics", "/health")] == [405, 405]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "["},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("page", ["question", "/metrics", "/health"])
def test_a_foreign_host_or_origin_reaches_nothing(http: httpx.Client, headers: dict, page: str) -> None:
    asked = post(http, body(FAST), **headers) if page == "question" else http.get(page, headers=headers)
    assert asked.status_code in (400, 403)
    assert "revelator_" not in asked.text and "Orland" not in asked.text and "ready" not in asked.text


# --- what would hold or end it ---


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WAIT)


def listen(connection: socket.socket) -> bytes:
    """All that a connection is told until it is closed."""
    heard = b""
    try:
        while piece := connection.recv(65_536):
            heard += piece
    except ConnectionError:
        pass
    return heard


def talk(url: str, *sent: bytes) -> bytes:
    with closing(connect(url)) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
        except ConnectionError:
            pass
        return listen(connection)


def head(method: str, path: str, url: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}", *lines, "", ""]).encode()


@pytest.mark.parametrize(("method", "path"), [("POST", INFER), ("GET", "/metrics"), ("POST", "/api/runs")])
def test_half_a_million_chunks_are_refused_and_cost_nothing(
    http: httpx.Client, url: str, method: str, path: str
) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    said = talk(url, head(method, path, url, "Transfer-Encoding: chunked"), b"1\r\na\r\n" * 500_000)
    assert said == b"" or b" 411 " in said.splitlines()[0]
    assert process.memory_info().rss < before + GROWTH


@pytest.mark.parametrize("length", [f"{BODY_BYTES + 1}", "-1", "1e9", "9" * 40, "²"])
def test_a_body_is_refused_by_its_length_before_it_comes(http: httpx.Client, url: str, length: str) -> None:
    said = talk(url, head("POST", INFER, url, f"Content-Length: {length}"))
    assert said.split(b" ")[1].startswith(b"413" if length.isdecimal() and len(length) < 10 else b"4")


@pytest.mark.parametrize("path", [INFER, "/v1/chat/completions"])
def test_a_client_that_sends_a_refused_body_to_its_end_is_told_why(http: httpx.Client, url: str, path: str) -> None:
    with closing(connect(url)) as connection:
        connection.sendall(head("POST", path, url, f"Content-Length: {2 * BODY_BYTES}") + b"x" * 2 * BODY_BYTES)
        said = listen(connection)
    assert b" 413 " in said.splitlines()[0] and "error" in json.loads(said.partition(b"\r\n\r\n")[2])


def test_a_refused_body_without_end_is_not_read_for_ever(http: httpx.Client, url: str) -> None:
    with closing(connect(url)) as connection, pytest.raises(ConnectionError):
        connection.sendall(head("POST", INFER, url, "Transfer-Encoding: chunked"))
        while True:
            connection.sendall(b"1\r\na\r\n" * 1_000)


@pytest.mark.parametrize("flood", [b"X-Long: " + b"a" * 10_000_000, b"X: y\r\n" * 1_000_000], ids=["one", "many"])
def test_headers_without_end_are_refused(http: httpx.Client, url: str, flood: bytes) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    said = talk(url, head("GET", "/health", url)[:-2], flood)
    assert said == b"" or said.startswith(b"HTTP/1.1 4")
    assert process.memory_info().rss < before + GROWTH


def test_large_bodies_that_do_not_arrive_leave_room_for_small_ones(http: httpx.Client, url: str) -> None:
    """Each of the eight says 8 MB and sends nothing: together they have all the room that large bodies have."""
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(closing(connect(url))).sendall(
                head("POST", INFER, url, f"Content-Length: {BODY_BYTES}")
            )
        large = given(parameters={"padding": "x" * 100_000})
        early = list(iter(lambda: post(http, large).status_code, 503))  # until all eight were begun
        assert set(early) <= {400}
        assert post(http, given("  ")).status_code == 400


@pytest.fixture(scope="module")
def impatient(config: ServingConfig, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP address of a service that waits a second for a request; it loads no model."""
    endpoint.knowledge[FAST] = ["Orland"]
    config = ServingConfig(**{**dict(config), "planner": {"url": endpoint.url, "model": "m"}})
    home: Path = tmp_path_factory.mktemp("impatient")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_front, "ARRIVAL_SECONDS", 1.0)
        with serve_in_thread(home, config) as (_, running):
            yield running.http


def test_a_request_that_does_not_arrive_is_ended_and_others_are_answered(impatient: str) -> None:
    whole = head("POST", INFER, impatient, "Content-Length: 1000")
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(connect(impatient))) for _ in range(20)]
        for number, connection in enumerate(slow):
            connection.sendall(whole + b"{" if number % 2 else whole[: len(whole) // 2])
        assert httpx.post(f"{impatient}{INFER}", json=body(FAST, strategy="single"), timeout=WAIT).status_code == 200
        said = [listen(connection)[:12] for connection in slow]
    assert said[1::2] == [b"HTTP/1.1 408"] * 10
    assert set(said[::2]) == {b""}


def test_a_body_that_drips_ends_with_its_connection(impatient: str) -> None:
    with closing(connect(impatient)) as dripping:
        dripping.sendall(head("POST", INFER, impatient, "Content-Length: 60000") + b"{")
        dripping.settimeout(0.1)
        end, said = time.monotonic() + WAIT, b""
        while time.monotonic() < end:
            try:
                dripping.sendall(b" ")
                part = dripping.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if not part:
                break
            said += part
        else:
            pytest.fail("the connection stays open")
    assert said.startswith(b"HTTP/1.1 408") and b"connection: close" in said.lower()


def test_a_connection_that_asks_again_and_again_is_kept_while_silent_ones_are_closed(impatient: str) -> None:
    with closing(HTTPConnection(urlsplit(impatient).netloc, timeout=WAIT)) as asking:
        asking.connect()
        asking.auto_open = 0
        for _ in range(2):
            with closing(connect(impatient)) as silent:
                while not select.select([silent], [], [], 0)[0]:
                    asking.putrequest("POST", INFER)
                    asking.putheader("Content-Length", "2")
                    asking.endheaders()
                    asking.send(b"{}")
                    with asking.getresponse() as response:
                        assert response.status == 400 and b"inputs" in response.read()
                assert silent.recv(1) == b""
