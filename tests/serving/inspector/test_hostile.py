"""What an inspector is sent and finds on its disk by somebody who means it harm: typed errors, and files of its own."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from revelator.trace import Node, Trace
from serving.inspector import Runs
from serving.inspector.runs import StoredRun
from tests.serving.inspector.world import QUESTION, Asked, asking, inspecting, runs_in

DIGITS = "9" * 5_000
DEEP = "[" * 50_000
GOOD, OTHER = "0" * 15 + "1", "0" * 15 + "2"


def stored(id: str = GOOD) -> dict:
    trace = Trace("Who?", "auto", nodes=[Node("1", "atomic", "Who?", detail={"method": "read"})])
    return StoredRun(id, "one", trace).to_json()


def with_node(**changes: object) -> dict:
    run = stored()
    return {**run, "trace": {**run["trace"], "nodes": [{**run["trace"]["nodes"][0], **changes}]}}


def written(value: object) -> bytes:
    return json.dumps(value).encode()


HOLES = {
    "nothing": b"",
    "no JSON": b"{",
    "cut off": written(stored())[:-20],
    "no UTF-8": written(stored()).replace(b"Who?", b"\xff\xfe", 1),
    "null": b"null",
    "a list": b"[]",
    "no fields": b"{}",
    "no trace": written({**stored(), "trace": None}),
    "a trace that is a number": written({**stored(), "trace": 5}),
    "a trace without nodes": written({**stored(), "trace": {}}),
    "a node that is null": written({**stored(), "trace": {**stored()["trace"], "nodes": [None]}}),
    "nodes that are a number": written({**stored(), "trace": {**stored()["trace"], "nodes": 5}}),
    "answers that are a number": written(with_node(answers=5)),
    "usage without counts": written(with_node(usage={"tokens_in": "many"})),
    "documents that are texts": written(with_node(documents=["a"])),
    "versions that are a list": written({**stored(), "trace": {**stored()["trace"], "versions": [1]}}),
    "a field that is not ours": written({**stored(), "trace": {**stored()["trace"], "colour": 1}}),
    "an id that is a number": written({**stored(), "id": 5}),
    "another run's id": written(stored(OTHER)),
    "an id that breaks a header": written({**stored(), "id": 'a"\r\nSet-Cookie: b'}),
    "an error that is a text": written({**stored(), "error": "no"}),
    "a number of 5,000 digits": written(with_node(detail={"n": 7})).replace(b": 7", b": " + DIGITS.encode()),
    "a time of 5,000 digits": written(with_node(ended_ms=7)).replace(b": 7", b": " + DIGITS.encode()),
    "no number": written(with_node(detail={"n": float("nan")})),
    "an endless number": written(with_node(detail={"n": 7})).replace(b": 7", b": 1e999"),
    "half a character": written(with_node(detail={"n": "\ud800"})),
    "nested too deep": b'{"id": ' + DEEP.encode(),
    "a detail nested too deep": written(with_node(detail={"n": 7})).replace(b": 7", b": " + b"[" * 400 + b"]" * 400),
    "a schema to come": written({**stored(), "trace": {**stored()["trace"], "schema": 99}}),
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    """An inspector with one good run, and the file of a bad one."""
    runs = runs_in(tmp_path_factory.mktemp("home"))
    runs.save(StoredRun(OTHER, "one", Trace("Who else?", "auto")))
    with inspecting([Asked("one", "1").server()], runs) as url, asking(url) as http:
        yield http, runs.folder / f"{GOOD}.json"


@pytest.mark.parametrize("hole", HOLES)
def test_a_run_file_with_holes_is_told_as_such_and_left_out_of_the_list(
    hole: str, damaged: tuple[httpx.Client, Path]
) -> None:
    http, file = damaged
    file.write_bytes(HOLES[hole])
    reply = http.get(f"/api/runs/{GOOD}")
    assert reply.status_code == 404 and reply.json()["error"]["error"] == "DataError", reply.text
    reply = http.post("/api/runs", json={"question": QUESTION, "reuse": GOOD})
    assert reply.status_code == 404 and reply.json()["error"]["error"] == "DataError", reply.text
    assert [run["id"] for run in http.get("/api/runs").json()] == [OTHER]


def test_a_run_that_is_whole_is_read_as_it_was_written(tmp_path: Path) -> None:
    runs = runs_in(tmp_path)
    run = StoredRun(
        GOOD, "one", Trace("Who?", "auto", nodes=[Node("1", "route", "Who?", detail={"p": [0.5, 1, None]})])
    )
    runs.save(run)
    assert runs.read(GOOD) == run


def test_runs_are_their_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "inspected"
    folder.mkdir(mode=0o755)
    Runs(folder).save(StoredRun(OTHER, "one", Trace("Who?", "auto")))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"inspected": 0o700, f"{OTHER}.json": 0o600}


@pytest.mark.parametrize("path", ["/api/runs", "/api/check", "/v1/chat/completions"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        DIGITS.encode(),
        DEEP.encode(),
        b'{"question": "\\ud800", "text": "\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}',
        f'{{"question": {DIGITS}, "text": {DIGITS}, "messages": {DIGITS}}}'.encode(),
        f'{{"question": "Who?", "deadline_ms": {DIGITS}, "text": "A?", "language": {DIGITS}, "n": {DIGITS}}}'.encode(),
        b'{"question": "Who?", "deadline_ms": 1e999, "language": NaN, "n": NaN}',
        b'{"question": "Who?", "plan": %b, "text": %b, "messages": [%b]}' % ((DEEP.encode(),) * 3),
    ],
    ids=lambda body: body[:30].decode(errors="replace"),
)
def test_a_body_that_is_none_is_refused_with_a_type(http: httpx.Client, path: str, body: bytes) -> None:
    reply = http.post(path, content=body)
    error = reply.json()["error"]
    assert (reply.status_code, error.get("error") or error["code"]) == (400, "InvalidRequest"), reply.text


@pytest.mark.parametrize(
    "text", [DIGITS[:4_999], "[" * 8_000, '{"question": ' * 600, f'{{"question": {DIGITS}}}', "\x00"]
)
@pytest.mark.parametrize("language", ["bnf", "logic", "art"])
def test_no_text_breaks_the_checkers(http: httpx.Client, language: str, text: str) -> None:
    reply = http.post("/api/check", json={"text": text, "language": language})
    assert reply.status_code == 200, reply.text
    assert reply.json()["valid"] or reply.json()["diagnostics"]


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//[", "http://127.0.0.1:99999999", "\x7f"])
@pytest.mark.parametrize("path", ["/", "/api/runs", "/v1/models"])
def test_an_origin_that_is_no_url_is_refused(http: httpx.Client, path: str, origin: str) -> None:
    assert http.get(path, headers={"Origin": origin}).status_code in (400, 403)


@pytest.mark.parametrize("path", ["/web/%00", "/web/..%2f..%2f..%2fetc%2fpasswd", "/web/" + "a" * 5_000, "/%ff", "//["])
def test_a_path_that_leads_nowhere_is_not_found(http: httpx.Client, address: str, path: str) -> None:
    reply = http.get(address + path)
    assert reply.status_code == 404, reply.text


def test_a_body_that_is_too_large_says_so(http: httpx.Client) -> None:
    reply = http.post("/api/runs", json={"question": "x" * 300_000})
    assert reply.status_code == 413 and "bytes" in reply.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_body_that_is_too_large_is_refused_in_openai_s_form_on_openai_s_routes(http: httpx.Client, path: str) -> None:
    reply = http.post(path, json={"input": "x" * 300_000})
    assert reply.status_code == 413 and reply.json()["error"] == {
        "message": "the body has more than 262,144 bytes",
        "type": "invalid_request_error",
        "param": None,
        "code": "InvalidRequest",
    }
