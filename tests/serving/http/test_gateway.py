"""HTTP: questions through the gateway, and what reaches nothing."""

from __future__ import annotations

import gzip
import json
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

from revelator.client import Client
from serving.home.running import find_running_server
from serving.http import gateway
from serving.http.kserve import BODY_BYTES, MODEL

QUESTION, PLAN = "Where is Sarnath?", "Where is Sarnath?"
INFER = f"{MODEL}/infer"


def body(question: object = QUESTION, options: object = "", **more: object) -> dict:
    def tensor(name: str, value: object) -> dict:
        return {"name": name, "datatype": "BYTES", "shape": [1], "data": [value]}

    return {"inputs": [tensor("question", question), tensor("options", options)], **more}


@pytest.fixture
def url(world) -> str:
    found = find_running_server(world.home)
    assert found and found.http
    return found.http


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False) as client:  # no certificates to read
        yield client


def post(http: httpx.Client, content: object, **headers: str) -> httpx.Response:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return http.post(INFER, content=text, headers={"Content-Type": "application/json", **headers})


# --- what a question over HTTP is given ---


def test_a_question_has_the_answer_and_the_trace_that_it_has_over_grpc(http: httpx.Client, client: Client) -> None:
    options = json.dumps({"plan": PLAN, "strategy": "auto"})
    reply = post(http, body(options=options, id="mine", parameters={"deadline_ms": 20_000}))
    assert reply.status_code == 200, reply.text
    value = reply.json()
    found = {tensor["name"]: tensor["data"][0] for tensor in value["outputs"]}
    asked = client.ask(QUESTION, plan=PLAN)
    assert (value["id"], value["model_name"]) == ("mine", "executor")
    assert found["answer"] == asked.answer == "Orland"
    assert json.loads(found["trace"])["plan"] == asked.trace.plan
    only = post(http, body(options=options, outputs=[{"name": "answer", "parameters": {"binary_data": False}}])).json()
    assert [tensor["name"] for tensor in only["outputs"]] == ["answer"]


def test_it_says_that_it_lives_is_ready_and_what_it_takes(http: httpx.Client) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", f"{MODEL}/ready"):
        assert http.get(path).status_code == 200
    described = http.get(MODEL).json()
    assert [tensor["name"] for tensor in described["inputs"]] == ["question", "options"]


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (body("  "), 400, "empty"),
        (body("x" * 3_000), 400, "question_characters"),
        (body(options="{"), 400, "not JSON"),
        (body(options="[" * 50_000), 400, "not JSON"),
        (body(options='{"deadline_ms": %s}' % ("9" * 5_000)), 400, "not JSON"),
        (body(options='{"colour": 1}'), 400, "options.colour"),
        (body(options='{"limits": 5}'), 400, "options.limits"),
        (body(options='{"limits": {"steps": [[], []]}}'), 400, "limit steps"),
        (body(options="[]"), 400, "options"),
        (body(options='{"plan": "Where was {who} born?"}'), 400, "cannot be run"),
        (body(options='{"strategy": "guess"}'), 400, "no strategy"),
        (body(options='{"strategy": 5}'), 400, "strategy"),
        (body(options='{"reuse": {"nodes": 5}}'), 400, "reuse"),
        (body(5), 400, "a text is needed"),
        (body("\ud800"), 400, ""),
        (body(parameters={"deadline_ms": -1}), 400, "greater than 0"),
        (body(parameters={"deadline_ms": 1e999}), 400, ""),
        (body(colour="red"), 400, "colour"),
        ({"inputs": []}, 400, "inputs"),
        ({"inputs": [*body()["inputs"][:1], *body()["inputs"][:1]]}, 400, "twice"),
        ({"inputs": body()["inputs"][1:]}, 400, "missing"),
        ({"inputs": [{**body()["inputs"][0], "datatype": "FP32"}]}, 400, "BYTES"),
        ({"inputs": [{**body()["inputs"][0], "shape": [2]}]}, 400, ""),
        ([], 400, "mapping"),
        (b"{", 400, "JSON"),
        (b"\xff", 400, ""),
        (b'{"inputs": ' + b"9" * 5_000 + b"}", 400, ""),
        (b"[" * 100_000, 400, ""),
        ({f"k{n}": 0 for n in range(500_000)}, 400, "more than 20,000 values"),
        ({"inputs": [{f"k{n}": 0 for n in range(500_000)}]}, 400, "more than 20,000 values"),
        (b'{"inputs": [], "outputs": [' + b"{}," * 2_000_000 + b"{}]}", 400, "more than 20,000 values"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_refused_with_a_sentence_and_a_type(http: httpx.Client, sent, status: int, says: str) -> None:
    reply = post(http, sent)
    value = reply.json()
    assert reply.status_code == status and says in value["error"] and value["detail"]["error"], reply.text


def test_the_health_service_that_kubernetes_asks_says_serving(world) -> None:
    with grpc.insecure_channel(world.url) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=10) == b"\x08\x01"  # HealthCheckResponse, SERVING


# --- what reaches nothing ---


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
        "/metrics",
    ],
)
def test_nothing_but_the_executor_is_there(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404 and http.post(path, json={}).status_code in (404, 405)


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
@pytest.mark.parametrize("page", ["question", "metrics"])
def test_a_foreign_host_or_origin_reaches_nothing(http: httpx.Client, world, headers: dict, page: str) -> None:
    asked = post(http, body(), **headers) if page == "question" else http.get(world.metrics, headers=headers)
    assert asked.status_code in (400, 403)
    assert "nv_" not in asked.text and "Orland" not in asked.text


def test_the_page_of_metrics_goes_through_and_takes_nothing_but_get(http: httpx.Client, world) -> None:
    assert "nv_inference_request_success" in http.get(world.metrics).text
    assert http.post(world.metrics, content=b"x").status_code == 405


# --- what would hold or end it ---


def talk(url: str, *sent: bytes, wait: float = 30.0) -> bytes:
    """What a raw connection is answered, until it is closed."""
    parts = urlsplit(url)
    heard = b""
    with socket.create_connection((parts.hostname, parts.port), timeout=wait) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
            while piece := connection.recv(65_536):
                heard += piece
        except (ConnectionError, TimeoutError):
            pass
    return heard


def head(method: str, path: str, url: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}", *lines, "", ""]).encode()


def resident(pids: list[int]) -> float:
    return sum(psutil.Process(pid).memory_info().rss for pid in pids) / 1e6


def still_answers(http: httpx.Client) -> bool:
    return post(http, body(options=json.dumps({"plan": PLAN}))).json()["outputs"][0]["data"] == ["Orland"]


@pytest.mark.parametrize("page", ["question", "metrics"])
def test_half_a_million_chunks_are_refused_and_cost_nothing(http: httpx.Client, world, url: str, page: str) -> None:
    """Triton's own HTTP server ends with SIGSEGV on them, and its page of metrics takes 500 MB."""
    target = (url, INFER, "POST") if page == "question" else (world.metrics, "/metrics", "GET")
    server = psutil.Process(world.pid)
    before = resident([world.pid])
    said = talk(target[0], head(target[2], target[1], target[0], "Transfer-Encoding: chunked"), b"1\r\na\r\n" * 500_000)
    assert said == b"" or b" 411 " in said.splitlines()[0]
    assert server.is_running() and resident([world.pid]) < before + 50
    assert still_answers(http)


def test_a_body_that_is_compressed_or_too_large_is_refused_unread(http: httpx.Client) -> None:
    assert post(http, gzip.compress(json.dumps(body()).encode()), **{"Content-Encoding": "gzip"}).status_code == 415
    url = str(http.base_url)
    for length, refusal in {f"{BODY_BYTES + 1}": b"413", "-1": b"4", "1e9": b"4", "9" * 40: b"4", "²": b"4"}.items():
        said = talk(url, head("POST", INFER, url, f"Content-Length: {length}"))
        assert said.split(b" ")[1].startswith(refusal), length
    assert still_answers(http)


def test_a_request_that_does_not_arrive_is_ended_and_others_are_answered(
    http: httpx.Client, url: str, monkeypatch
) -> None:
    monkeypatch.setattr(gateway, "ARRIVAL_SECONDS", 1.0)
    parts = urlsplit(url)
    slow = [socket.create_connection((parts.hostname, parts.port), timeout=30) for _ in range(20)]
    for number, connection in enumerate(slow):
        whole = head("POST", INFER, url, "Content-Length: 1000")
        connection.sendall(whole[: len(whole) // 2] if number % 2 else whole + b"{")
    assert still_answers(http)
    began = time.monotonic()
    for connection in slow:
        while connection.recv(4_096):
            pass
        connection.close()
    assert time.monotonic() - began < 25


def test_a_connection_that_asks_again_and_again_is_kept_however_long_ago_it_began(url: str, monkeypatch) -> None:
    """Each request comes in two parts, soon after the other: when its time would have been over, a later one comes."""
    monkeypatch.setattr(gateway, "ARRIVAL_SECONDS", 1.0)
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=30)) as connection:
        connection.connect()
        connection.auto_open = 0
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            connection.putrequest("POST", INFER)
            connection.putheader("Content-Length", "2")
            connection.endheaders()
            time.sleep(0.02)
            connection.send(b"{}")
            with connection.getresponse() as response:
                assert response.status == 400 and b"inputs" in response.read()


def test_large_bodies_that_do_not_arrive_leave_room_for_small_ones(http: httpx.Client, url: str) -> None:
    """Each of the eight says 8 MB and sends nothing: together they have all the room that large bodies have."""
    parts = urlsplit(url)
    with ExitStack() as stack:
        for _ in range(8):
            connection = socket.create_connection((parts.hostname, parts.port), timeout=30)
            stack.enter_context(connection).sendall(head("POST", INFER, url, f"Content-Length: {BODY_BYTES}"))
        large = body(parameters={"padding": "x" * 100_000})
        early = list(iter(lambda: post(http, large).status_code, 503))  # until all eight were begun
        assert set(early) <= {400}
        assert post(http, body("  ")).status_code == 400


def test_headers_without_end_are_refused(url: str, http: httpx.Client) -> None:
    said = talk(url, head("GET", "/v2/health/live", url)[:-2], b"X-Long: " + b"a" * 10_000_000)
    assert said == b"" or said.startswith(b"HTTP/1.1 4")
    assert still_answers(http)


def test_without_the_option_there_is_no_http(world, tmp_path: Path) -> None:
    """What serves the tests has HTTP by `--http`; Triton itself has none."""
    listening = {c.laddr.port for c in psutil.Process(world.pid).net_connections() if c.status == psutil.CONN_LISTEN}
    found = find_running_server(world.home)
    assert found and found.http and urlsplit(found.http).port not in listening
    assert int(found.grpc.split(":")[1]) in listening
