"""The inspector's own routes: events as they happen, runs that are kept, the checker, and who may ask."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from revelator.errors import Overloaded, Unavailable
from revelator.plans.language import BNF
from revelator.trace import Event, Trace, replay
from serving.inspector import Runs
from serving.inspector.runs import StoredRun
from tests.serving.inspector.world import PLAN, QUESTION, Asked, asking, inspecting, runs_in


def ask(http: httpx.Client, **wanted: object) -> list[dict]:
    reply = http.post("/api/runs", json=wanted)
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def kept(http: httpx.Client, run: str) -> dict:
    return http.get(f"/api/runs/{run}").json()


def test_the_events_of_a_question_are_its_trace_and_the_run_is_kept(http):
    *events, saved = ask(http, question=QUESTION)
    trace = replay(map(Event.from_json, events))
    assert (trace.answer, trace.plan) == ("Detroit", PLAN)
    assert saved["kind"] == "saved"
    assert kept(http, saved["run"])["trace"] == trace.to_json()
    assert http.get("/api/runs").json()[0]["id"] == saved["run"]


def test_an_event_arrives_while_the_question_still_runs(tmp_path):
    asked = Asked("one", "1")
    asked.world.gate("Where was Jay Levey born?")
    with inspecting([asked.server()], runs_in(tmp_path)) as url, asking(url) as http:
        with http.stream("POST", "/api/runs", json={"question": QUESTION}) as reply:
            for line in reply.iter_lines():
                if json.loads(line)["changes"].get("answers") == ["Jay Levey"]:
                    break  # the second leaf is held back: the client leaves here
        assert asked.left.wait(20)
        assert http.get("/api/runs").json() == []


def test_what_has_not_changed_is_taken_from_the_run_before(http, asked):
    first = ask(http, question=QUESTION)[-1]["run"]
    count = len(asked[0].world.asked)
    plan = "Who directed UHF? * When was {director} born?"
    again = kept(http, ask(http, question=QUESTION, plan=plan, reuse=first)[-1]["run"])
    assert again["trace"]["answer"] == "1953" and again["reuse"] == first
    assert asked[0].world.asked[count:] == ["When was Jay Levey born?"]


def test_each_server_can_be_asked_and_says_its_version(http):
    servers = http.get("/api/servers").json()
    assert [server["models"]["revelator"] for server in servers] == ["7", "8"]
    for server in servers:
        run = ask(http, question=QUESTION, server=server["name"])[-1]["run"]
        assert kept(http, run)["trace"]["versions"].items() >= server["models"].items()


@pytest.mark.parametrize("text", [PLAN, "Who is {x}?", "A ) B", "(𝔸? + B?) * Which of {a} is {𝔟?", "(𝔸? + B?) * C {x}"])
def test_the_check_route_says_what_the_checker_says(http, text):
    said = http.post("/api/check", json={"text": text}).json()
    expected = BNF.diagnose(text)
    assert said["valid"] == expected["valid"]
    for kind in ("diagnostics", "advice"):
        for diagnostic, known in zip(said[kind], expected[kind], strict=True):
            assert "^" in diagnostic.pop("excerpt") and diagnostic == known


def test_a_text_that_would_take_long_to_check_is_refused(http):
    reply = http.post("/api/check", json={"text": "A? + " * 10_000 + "B?"})
    assert reply.status_code == 400 and reply.json()["error"]["where"] == "text"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("logic", '"a" AND NOT "b'),
        ("logic", r'"\ud800" OR "mill"'),
        ("bnf", r'"\ud800"'),
        ("art", '{"question": 3}'),
        ("art", r'{"question": "\ud800", "search": {"name": "x"}}'),
    ],
)
def test_the_other_languages_are_checked_too(http, language, text):
    said = http.post("/api/check", json={"text": text, "language": language}).json()
    assert not said["valid"] and "^" in said["diagnostics"][0]["excerpt"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"question": 3}, "question"),
        ({}, "question"),
        ({"question": "Who?", "colour": 1}, "colour"),
        ({"question": "Who?", "server": "none"}, None),
        ({"question": ""}, None),
        ({"question": "Who?", "plan": "A ) B"}, "line 1, column 3"),
    ],
)
def test_a_request_that_cannot_be_asked_is_refused_with_its_reason(http, body, where):
    reply = http.post("/api/runs", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["where"] == where
    assert reply.json()["error"]["message"]


@pytest.mark.parametrize(("error", "status"), [(Overloaded("full"), 429), (Unavailable("down", hint="start it"), 503)])
def test_a_server_that_refuses_is_told_by_status(tmp_path, error, status):
    with inspecting([Asked("one", "1", error=error).server()], runs_in(tmp_path)) as url, asking(url) as http:
        reply = http.post("/api/runs", json={"question": "Who?"})
        assert (reply.status_code, reply.json()["error"]["message"]) == (status, error.message)


def test_a_run_that_nobody_kept_is_not_found(http):
    for id in ("0" * 16, "..%2f..%2fetc%2fpasswd", "x"):
        assert http.get(f"/api/runs/{id}").status_code == 404


def test_of_many_runs_the_newest_are_kept(tmp_path: Path) -> None:
    runs = Runs(tmp_path, most=3)
    ids = [f"{n:016x}" for n in range(5)]
    for id in ids:
        runs.save(StoredRun(id, "one", Trace(f"Who is {id}?", "auto")))
    (tmp_path / "0000000000000009.json").write_text("[]")
    assert [run["id"] for run in Runs(tmp_path).list_summaries()] == ids[:1:-1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "rebound.example"}, 400),
        ({"Host": "127.0.0.1.rebound.example:80"}, 400),
        ({"Host": ""}, 400),
        ({"Host": "[::1"}, 400),
        ({"Origin": "http://other.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1"}, 200),
    ],
)
def test_other_names_and_other_origins_are_refused(http, headers, status):
    reply = http.get("/api/servers", headers=headers)
    assert reply.status_code == status
    assert "access-control-allow-origin" not in reply.headers


def test_every_reply_forbids_what_the_page_does_not_need(http):
    for path in ("/", "/web/main.js", "/api/runs", "/nowhere"):
        policy = http.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


def test_a_token_guards_everything_but_the_empty_page(tmp_path):
    guarded = inspecting([Asked("one", "1").server()], runs_in(tmp_path), token="secret")
    with guarded as url, asking(url) as http:
        assert http.get("/").status_code == 200
        for path in ("/api/runs", "/api/servers", "/v1/models"):
            assert http.get(path).status_code == 401
            assert http.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert http.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
