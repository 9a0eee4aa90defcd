"""The HTTP front: KServe's protocol, the page and its API, OpenAI's chat, metrics and health, at one address."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import parse_qs, urlsplit

import httpx
import openai
import pytest
from starlette.responses import JSONResponse

from revelator.channels import TOKEN
from revelator.client import Client
from revelator.endpoints import LOOPBACK
from revelator.trace import Event, Trace, replay
from serving.home.config import ServingConfig
from serving.http.callers import Callers
from serving.http.kserve import BODY_BYTES, MODEL
from serving.http.protection import Protection
from tests.serving.service.conftest import FAST, PLAN, QUESTION, WAIT, Service, serve_in_thread


@pytest.fixture
def page(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.running.http, timeout=WAIT) as page:
        yield page
        assert page.post(f"{MODEL}/infer", json=body(FAST, strategy="single")).status_code == 200


def body(question: str, **options: object) -> dict:
    texts = {"question": question, "options": json.dumps(options)}
    return {"inputs": [{"name": n, "datatype": "BYTES", "shape": [1], "data": [t]} for n, t in texts.items()]}


def test_kserve_s_protocol_answers_with_the_trace(page):
    reply = page.post(f"{MODEL}/infer", json={"id": "7", **body(QUESTION, plan=PLAN)}).json()
    texts = {output["name"]: output["data"][0] for output in reply["outputs"]}
    assert reply["id"] == "7" and texts["answer"] == "Port Velm"
    assert Trace.from_json(json.loads(texts["trace"])).versions["retriever"] == "1"
    assert page.get("/v2/health/ready").status_code == page.get(f"{MODEL}/ready").status_code == 200
    refused = page.post(f"{MODEL}/infer", json=body(QUESTION, plan="Who is {x}?"))
    assert refused.status_code == 400 and refused.json()["detail"]["error"] == "PlanError"


def test_the_page_asks_and_keeps_runs(page, service):
    assert "<html" in page.get("/").text
    [server] = page.get("/api/servers").json()
    assert server["name"] == service.url and server["models"]["revelator"] == "0"
    reply = page.post("/api/runs", json={"question": QUESTION, "plan": PLAN})
    *events, saved = map(json.loads, reply.text.splitlines())
    assert replay(map(Event.from_json, events)).answers == ["Port Velm"]
    kept = page.get(f"/api/runs/{saved['run']}").json()
    assert kept["trace"]["answer"] == "Port Velm"
    again = page.post("/api/runs", json={"question": QUESTION, "plan": PLAN, "reuse": saved["run"]})
    assert '"reused_from"' in again.text
    refused = page.post("/api/runs", json={"question": QUESTION, "plan": "Who is {x}?"})
    assert refused.status_code == 400 and refused.json()["error"]["diagnostics"]


def test_openai_s_client_is_answered_whole_and_in_a_stream(service, page):
    with openai.OpenAI(base_url=f"{service.running.http}/v1", api_key="none", timeout=WAIT) as client:
        asked = {"model": "revelator", "messages": [{"role": "user", "content": FAST}]}
        assert client.chat.completions.create(**asked).choices[0].message.content.startswith("Orland")
        chunks = client.chat.completions.create(**asked, stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert said.startswith("Orland")


def test_a_source_of_a_chat_s_reply_opens_the_passage_that_was_read(service, page):
    with openai.OpenAI(base_url=f"{service.running.http}/v1", api_key="none", timeout=WAIT) as client:
        said = client.chat.completions.create(model="revelator", messages=[{"role": "user", "content": FAST}])
    links = re.findall(r"\]\((\S+)\)", said.choices[0].message.content or "")
    assert links and all(link.startswith(f"{service.running.http}/?passage=") for link in links)
    assert "<html" in httpx.get(links[0]).text
    [id] = parse_qs(urlsplit(links[0]).query)["passage"]
    opened = page.get("/api/passages", params={"id": id}).json()
    assert opened["passage"]["id"] == id and "Orland" in opened["passage"]["text"]
    assert page.get("/api/passages", params={"id": f"{id}x"}).status_code == 404


def test_metrics_count_questions_and_health_says_ready(page):
    name = 'revelator_questions_total{model="executor",outcome="answered",route="single",version=""}'

    def count() -> float:
        lines = page.get("/metrics").text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)

    before = count()
    page.post(f"{MODEL}/infer", json=body(FAST, strategy="single"))
    assert count() == before + 1
    assert page.get("/health").json() == {"status": "ready"}


def test_bodies_that_are_chunked_compressed_or_too_large_are_refused(page):
    def chunks() -> Iterator[bytes]:
        yield b"{}"

    assert page.post(f"{MODEL}/infer", content=chunks()).status_code == 411
    assert page.post(f"{MODEL}/infer", content=b"x", headers={"Content-Encoding": "gzip"}).status_code == 415
    assert page.post(f"{MODEL}/infer", content=b"x" * (BODY_BYTES + 1)).status_code == 413
    refused = page.post("/v1/chat/completions", content=b"x" * (BODY_BYTES + 1))
    assert refused.status_code == 413 and refused.json()["error"]["type"] == "invalid_request_error"
    assert page.get("/nowhere").status_code == 404


@pytest.mark.parametrize(
    "path", ["/nowhere", "/api/nothing", "/api/passages?id=none", "/api/runs/20200101-000000-000000", "/v2/models/none"]
)
def test_what_there_is_not_has_a_code_of_its_own(page, path):
    reply = page.get(path)
    said = reply.json()
    error = said["detail"] if path.startswith("/v2/") else said["error"]
    assert (reply.status_code, error["code"]) == (404, "NOT_FOUND") and error["message"]


def test_connections_that_say_nothing_keep_nobody_waiting(page, service):
    with ExitStack() as stack:
        for address in (urlsplit(service.running.http).netloc, service.url):
            host, _, port = address.partition(":")
            for _ in range(300):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=WAIT))
        assert page.get("/health", timeout=5).status_code == 200
        with Client(service.url, timeout=WAIT) as client:
            assert client.ask(FAST, strategy="single").answers == ("Orland",)


def test_with_a_token_only_probes_from_this_machine_and_the_page_s_files_are_open(
    tmp_path, config: ServingConfig, monkeypatch
):
    monkeypatch.setenv(TOKEN, "a-token-of-this-test")
    asked = ServingConfig(**{**dict(config), "planner": {"url": config.generator, "model": "m"}})  # loads no model
    with serve_in_thread(tmp_path, asked) as (_, running), httpx.Client(base_url=running.http) as page:
        assert page.get("/health").json() == {"status": "ready"}
        assert "revelator_questions" in page.get("/metrics").text
        assert page.get("/").status_code == 200
        for path in ("/api/servers", "/api/passages?id=a", "/v1/models", "/v2/health/ready", "/health/", "/metrics/x"):
            assert page.get(path).status_code == 401
        bearer = {"Authorization": "Bearer a-token-of-this-test"}
        assert page.get("/v2/health/ready", headers=bearer).status_code == 200


async def test_from_another_machine_health_is_open_and_metrics_need_the_token():
    async def app(scope, receive, send) -> None:
        await JSONResponse({"status": "ready"})(scope, receive, send)

    protected = Protection(app, LOOPBACK, Callers("a-token"), by_address=True, probes=("/metrics",))
    for client, status in (("127.0.0.1", 200), ("::1", 200), ("192.0.2.7", 401)):
        transport = httpx.ASGITransport(protected, client=(client, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as asking:
            assert (await asking.get("/health")).status_code == 200
            assert (await asking.get("/metrics")).status_code == status
