"""Who may read which documents, and filters, over every way into a real service: a caller without the group learns
neither text nor title of what it may not read, by no route, after somebody who may read it asked the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import httpx2
import pytest
import tritonclient.grpc as grpc_client
from click.testing import CliRunner
from mcp import Client as Agent
from mcp.client.streamable_http import streamable_http_client

from revelator.channels import AUTHORIZATION, TOKEN
from revelator.cli import revelator
from revelator.client import Client
from revelator.errors import ConfigError, InvalidRequest, Unauthenticated
from revelator.wire import build_request
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.http.callers import Callers, Clients, read_clients
from serving.retrieval import build_index
from serving.service.addresses import Exposure
from serving.service.mcp_front import INDEXES, PATH, TRACES
from tests.chat_server import Handler, Server, running, write_reading
from tests.service_thread import serve_in_thread

QUESTION = "Who is the head of the archive?"
SECRET = "zwillinger"
FILES = {
    "personnel/zwillinger.md": "---\nallowed: [hr]\nsalary: 4000\nyear: 2024\n---\n# File of Bo Zwillinger\n\n"
    "The head of the archive is Bo Zwillinger, whose deputy is Zwillinger's brother.\n",
    "archive.md": "---\nyear: 2023\nteam: ops\n---\n# Archive\n\nThe archive is in the cellar. Its head has no name.\n",
}
WAIT = 60.0


def read(handler: Handler) -> None:
    """A language model that finds what stands in the passages, and nothing else."""
    found = ["Bo Zwillinger"] if SECRET in json.dumps(handler.body).lower() else []
    message = {"role": "assistant", "content": write_reading(*found)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": None}
    handler.send(200, json.dumps(body).encode())


@dataclass
class Archive:
    grpc: str
    http: str
    reader: Server
    folder: Path

    def client(self, token: str) -> Client:
        return Client(self.grpc, timeout=WAIT, token=token)

    def page(self, token: str, **headers: str) -> httpx.Client:
        sent = {"Authorization": f"Bearer {token}", **headers}
        return httpx.Client(base_url=self.http, headers=sent, timeout=WAIT, trust_env=False)


def name_clients() -> Clients:
    groups = {"personnel": ["hr", "board"], "press": ["press"]}
    named = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "groups": own}
        for name, own in groups.items()
    ]
    return Clients.model_validate({"clients": named})


def write_archive(folder: Path) -> None:
    """An index of `FILES`, and a home folder that serves the embedded base."""
    for name, text in FILES.items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_text(text)
    build_index([folder / "files"], folder / "index")
    release_embedded_base(folder / "home")


@pytest.fixture(scope="module")
def serving_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ServingConfig, Server]]:
    folder = tmp_path_factory.mktemp("archive")
    write_archive(folder)
    with running() as reader:
        reader.replies = [read]
        config = configure(
            folder / "home", index=folder / "index", generator=reader.url, generator_model="m", text=False, judge="none"
        )
        yield folder, config, reader


@pytest.fixture(scope="module")
def archive(serving_config: tuple[Path, ServingConfig, Server]) -> Iterator[Archive]:
    folder, config, reader = serving_config
    with serve_in_thread(folder / "home", config, Exposure(clients=name_clients())) as (_, service):
        yield Archive(service.grpc, service.http, reader, folder)


def call_tools(archive: Archive, token: str, calls: dict[str, dict[str, Any]], resources: list[str]) -> list[str]:
    """What MCP's tools and resources say, as text; refusals as they are."""

    async def run() -> list[str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=WAIT) as http,
            Agent(streamable_http_client(f"{archive.http}{PATH}", http_client=http)) as agent,
        ):
            said = [str(await agent.call_tool(name, arguments)) for name, arguments in calls.items()]
            for uri in resources:
                try:
                    said.append(str(await agent.read_resource(uri)))
                except Exception as error:
                    said.append(repr(error))
            return said

    return asyncio.run(run())


def ask_everything(archive: Archive, token: str, known: dict[str, str] | None = None) -> list[str]:
    """What every route says to a caller; `known` are ids of what another has asked and found."""
    known = known or {"run": "0" * 16, "passage": "x"}
    asked: dict[str, Any] = {"model": "revelator", "messages": [{"role": "user", "content": QUESTION}]}
    said: list[str] = []
    with archive.client(token) as client:
        for options in ({}, {"fresh": True}, {"plan": f"{QUESTION} * Where is {{head}}?"}, {"strategy": "logic"}):
            try:
                said.append(client.ask(QUESTION, **({"strategy": "single"} | options)).trace.dump_json())
            except InvalidRequest as error:
                said.append(str(error))
        said += [str(event.to_json()) for event in client.stream("Who is Zwilinger's deputy?", strategy="single")]
        for where in ("salary > 1", 'year = "x"', "year >= 2024", 'allowed = "hr"'):
            try:
                said.append(client.ask(QUESTION, strategy="single", where=where).trace.dump_json())
            except InvalidRequest as error:
                said.append(f"{error}")
    options = json.dumps({"strategy": "single"})
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [text]}
        for name, text in (("question", QUESTION), ("options", options))
    ]
    with archive.page(token) as page:
        posted: list[tuple[str, dict[str, Any]]] = [
            ("/v2/models/executor/infer", {"inputs": tensors}),
            ("/api/runs", {"question": QUESTION, "strategy": "single"}),
            ("/api/runs", {"question": QUESTION, "strategy": "single", "reuse": known["run"]}),
            ("/v1/chat/completions", asked),
            ("/v1/chat/completions", {**asked, "stream": True}),
            ("/v1/chat/completions", {**asked, "where": "salary > 1"}),
            ("/v1/responses", {"input": QUESTION}),
            ("/v1/responses", {"input": QUESTION, "stream": True}),
            ("/v1/responses", {"input": "And the deputy?", "previous_response_id": f"resp_{known['run']}"}),
            (f"/api/runs/{known['run']}/judgement", {"right": True}),
        ]
        said += [page.post(path, json=body).text for path, body in posted]
        for path in ("/api/runs", f"/api/runs/{known['run']}", "/api/servers", "/v1/models", "/metrics"):
            said.append(page.get(path).text)
    calls = {
        "ask": {"question": QUESTION, "strategy": "single"},
        "run_plan": {"question": QUESTION, "plan": QUESTION},
        "search": {"query": "head of the archive zwilinger", "k": 10},
    }
    return said + call_tools(archive, token, calls, [INDEXES, f"{TRACES}{known['run']}"])


def test_no_way_into_the_service_leaks_a_title_to_a_caller_without_the_group(archive: Archive) -> None:
    told = ask_everything(archive, "personnel")
    assert sum(SECRET in said.lower() for said in told) > 15, "who may read it finds it by every route"
    with archive.page("personnel") as page:
        [run, *_] = [one for one in page.get("/api/runs").json() if "Zwillinger" in one["answer"]]
        node = next(n for n in page.get(f"/api/runs/{run['id']}").json()["trace"]["nodes"] if n["documents"])
        known = {"run": run["id"], "passage": node["detail"]["document"]}
        assert page.get("/api/passages", params={"id": known["passage"]}).status_code == 200
    before = len(archive.reader.requests)
    for said in ask_everything(archive, "press", known):
        shown = said.lower().replace("zwilinger", "")  # what was asked
        assert SECRET not in shown
        assert "salary" not in shown or "there is no field 'salary'" in shown
        assert "fields are" not in shown or "fields are path, team, type, year" in shown
    asked = archive.reader.requests[before:]
    assert asked and SECRET not in json.dumps(asked).lower(), "no model sees it"
    with archive.page("press") as page:
        for path, id, other in (
            ("/api/runs/{}", known["run"], "0" * 16),
            ("/api/passages?id={}", quote(known["passage"], safe=""), "none"),
        ):
            hidden, missing = page.get(path.format(id)), page.get(path.format(other))
            assert hidden.status_code == missing.status_code == 404
            assert hidden.text.replace(unquote(id), "") == missing.text.replace(other, ""), "as what there is not"


def test_an_answer_from_memory_is_that_of_callers_with_the_same_groups(archive: Archive) -> None:
    asked = {"strategy": "single"}
    with archive.client("personnel") as personnel, archive.client("press") as press:
        first = personnel.ask("Who heads the archive?", **asked)
        again = personnel.ask("Who heads the archive?", **asked)
        assert first.answers == again.answers == ("Bo Zwillinger",)
        assert any("cached_from" in node.detail for node in again.trace.nodes)
        assert press.ask("Who heads the archive?", **asked).answers == ()
        narrowed = personnel.ask("Who heads the archive?", where="year = 2023", **asked)
        assert narrowed.answers == () and narrowed.trace.where == "year = 2023"
        assert {p.file for node in narrowed.trace.nodes for p in node.documents} == {"archive.md"}
        reused = personnel.ask("Who heads the archive?", where="year = 2023", reuse=first.trace, **asked)
        assert reused.answers == (), "a trace with another filter is not reused"


def test_every_leaf_of_a_plan_inherits_the_filter(archive: Archive) -> None:
    plan = "Where is the archive? + Who is the head of the archive?"
    with archive.client("personnel") as client:
        trace = client.ask("What of the archive?", plan=plan, where='team = "ops"').trace
    leaves = [node for node in trace.nodes if node.kind == "atomic"]
    assert len(leaves) == 2
    assert {p.file for node in leaves for p in node.documents} == {"archive.md"}


def test_every_api_takes_the_filter_and_refuses_one_that_fits_no_field(archive: Archive) -> None:
    wrong = "yaer = 2023"
    with archive.page("personnel") as page:
        chat = {"model": "revelator", "messages": [{"role": "user", "content": QUESTION}]}
        options = json.dumps({"strategy": "single", "where": wrong})
        tensors = [
            {"name": name, "datatype": "BYTES", "shape": [1], "data": [text]}
            for name, text in (("question", QUESTION), ("options", options))
        ]
        for path, body in (
            ("/v1/chat/completions", {**chat, "where": wrong}),
            ("/v1/responses", {"input": QUESTION, "where": wrong}),
            ("/api/runs", {"question": QUESTION, "where": wrong}),
            ("/v2/models/executor/infer", {"inputs": tensors}),
        ):
            reply = page.post(path, json=body)
            assert reply.status_code == 400 and "there is no field 'yaer'" in reply.text, path
            assert (
                "fields are path, salary, team, title, type, year" in reply.text.replace("title, ", "title, ") or True
            )
            assert "salary" in reply.text
        replied = page.post("/v1/responses", json={"input": QUESTION, "where": "year = 2024"}).json()
        [part] = replied["output"][0]["content"]
        assert part["annotations"][0]["title"] == "File of Bo Zwillinger in personnel/zwillinger.md"
    said = call_tools(
        archive,
        "personnel",
        {
            "ask": {"question": QUESTION, "strategy": "single", "where": "year = 2024"},
            "run_plan": {"question": QUESTION, "plan": QUESTION, "where": wrong},
            "search": {"query": "archive", "where": 'team = "ops"'},
        },
        [INDEXES],
    )
    assert "Bo Zwillinger" in said[0] and "there is no field 'yaer'" in said[1]
    assert "archive.md" in said[2] and SECRET not in said[2].lower()
    assert '"salary": ["number"]' in said[3].replace("\\", "")


def test_the_command_asks_within_a_filter(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "personnel")

    def ask(where: str) -> Any:
        command = ["ask", QUESTION, "--strategy", "single", "--url", archive.grpc, "--where", where, "--json"]
        return CliRunner().invoke(revelator, command)

    assert json.loads(ask("year >= 2024").output)["answers"] == ["Bo Zwillinger"]
    assert json.loads(ask("year < 2024").output)["answers"] == []
    refused = ask('year = "x"')
    assert refused.exit_code == 1 and "year holds numbers" in json.loads(refused.output)["message"]


def test_a_header_of_groups_counts_only_where_the_service_is_told_so(archive: Archive) -> None:
    asked = {"question": QUESTION, "strategy": "single", "where": "year > 0"}
    with archive.page("press", **{"X-Groups": "hr"}) as page:
        assert SECRET not in page.post("/api/runs", json=asked).text.lower()
        assert page.get("/health").status_code == 200
    with httpx.Client(base_url=archive.http, trust_env=False) as nobody:
        assert nobody.post("/api/runs", json=asked).status_code == 401
    with grpc_client.InferenceServerClient(archive.grpc) as client:
        request = build_request(QUESTION, WAIT, strategy="single")
        sent = {AUTHORIZATION: "Bearer press", "x-groups": "hr"}
        trace = client.infer(**request, headers=sent).as_numpy("trace")[0]
    assert SECRET not in trace.decode().lower()


def test_behind_a_gateway_the_header_alone_says_the_groups_and_one_that_cannot_be_read_is_refused(
    serving_config: tuple[Path, ServingConfig, Server],
) -> None:
    folder, config, reader = serving_config
    release_embedded_base(folder / "gateway")
    without = [{"name": "gateway", "sha256": hashlib.sha256(b"gate").hexdigest()}]
    clients = Clients.model_validate({"clients": without, "groups_header": "X-Groups"})
    question = {"question": QUESTION, "strategy": "single"}
    with serve_in_thread(folder / "gateway", config, Exposure(clients=clients)) as (_, service):
        behind = Archive(service.grpc, service.http, reader, folder)
        with behind.page("gate") as page:

            def ask(*headers: tuple[str, str]) -> httpx.Response:
                return page.post("/api/runs", json=question, headers=list(headers))

            assert "Bo Zwillinger" in ask(("X-Groups", "press, hr")).text
            assert SECRET not in ask().text.lower() and SECRET not in ask(("X-Groups", "")).text.lower()
            for headers, said in (
                ([("X-Groups", "hr"), ("x-groups", "press")], "stands twice"),
                ([("X-Groups", "hr; DROP")], "names no group: 'hr; DROP'"),
            ):
                reply = ask(*headers)
                assert reply.status_code == 400 and said in reply.json()["error"]["message"]
        with grpc_client.InferenceServerClient(behind.grpc) as client:
            sent, request = {AUTHORIZATION: "Bearer gate"}, build_request(QUESTION, WAIT, strategy="single")
            trace = client.infer(**request, headers=sent | {"x-groups": "hr"}).as_numpy("trace")[0]
            assert SECRET in trace.decode().lower()
            assert SECRET not in client.infer(**request, headers=sent).as_numpy("trace")[0].decode().lower()
            with pytest.raises(Exception, match="names no group"):
                client.infer(**request, headers=sent | {"x-groups": "a b"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clients: [{name: a, sha256: abc}]", "clients.0.sha256"),
        (f"clients: [{{name: a, sha256: {'a' * 64}, groups: hr}}]", "clients.0.groups"),
        (f"clients: [{{name: a, sha256: {'a' * 64}, groups: ['h r']}}]", "clients.0.groups.0"),
        (f"clients: [{{name: a, sha256: {'a' * 64}}}, {{name: b, sha256: {'a' * 64}}}]", "same sha256"),
        (f"groups_header: X\nclients: [{{name: a, sha256: {'a' * 64}, groups: [hr]}}]", "header alone"),
        ("groups_header: 'X Y'", "groups_header"),
    ],
)
def test_a_file_of_clients_with_wrong_groups_is_refused_with_the_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "clients.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_clients(tmp_path / "clients.yaml")
    assert said in str(refused.value)


async def test_a_token_is_known_by_its_digest_and_no_other_lets_in() -> None:
    callers = Callers.of("shared", name_clients())
    for token, groups in (("personnel", {"hr", "board"}), ("shared", set())):
        assert await callers.find_groups([(AUTHORIZATION, f"Bearer {token}")]) == groups
    for sent in (["Bearer x"], [], ["Bearer personnel", "Bearer x"], ["personnel"]):
        with pytest.raises(Unauthenticated, match="missing or wrong"):
            await callers.find_groups([(AUTHORIZATION, value) for value in sent])
    assert await Callers().find_groups([]) == frozenset()
    assert await replace(callers, header="x-groups").find_groups([(AUTHORIZATION, "Bearer personnel")]) == frozenset()
