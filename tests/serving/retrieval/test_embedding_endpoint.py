"""An index whose vectors come from an endpoint: a real HTTP server on loopback, with the faults of such servers."""

from __future__ import annotations

import json
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError, ServingError, Unavailable
from serving.retrieval import Index, IndexSettings, build_index
from tests.chat_server import Handler, Server, cuts, fails, running

SIZE = 64


def embeds(handler: Handler, size: int = SIZE, salt: str = "") -> None:
    """A text's vector counts its words, each at the place of its checksum; rows come in reverse."""
    rows = []
    for index, text in enumerate(handler.body["input"]):
        vector = [0.0] * size
        for word in text.lower().split():
            vector[zlib.crc32(f"{salt}{word}".encode()) % size] += 1.0
        rows.append({"object": "embedding", "index": index, "embedding": vector})
    body = {"object": "list", "model": handler.body["model"], "data": rows[::-1], "usage": {}}
    handler.send(200, json.dumps(body).encode())


def sends(body: Any) -> Any:
    return lambda handler: handler.send(200, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with running() as started:
        started.replies = [embeds]
        yield started


def build(server: Server, folder: Path, **more: Any) -> Path:
    rows = [{"id": str(i), "title": "", "text": text} for i, text in enumerate(["red cat", "blue dog", "green fish"])]
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"kind": "dense", "model": "embedder", "embeddings": server.url} | more
    build_index([folder / "c.jsonl"], folder / "ix", IndexSettings(**settings))
    return folder / "ix"


def test_vectors_of_an_endpoint_are_built_once_and_searched(server: Server, tmp_path: Path) -> None:
    index = Index.open(build(server, tmp_path))
    [best] = index.search("blue dog", 1)
    assert best.id == "1" and best.score == pytest.approx(1.0)
    assert {request["path"] for request in server.requests} == {"/v1/embeddings"}
    assert {request["model"] for request in server.requests} == {"embedder"}
    manifest = json.loads((tmp_path / "ix" / "manifest.json").read_text())
    assert manifest["model"]["dimensions"] == SIZE and "sk-secret" not in json.dumps(manifest)


def test_prefixes_stand_before_queries_and_passages(server: Server, tmp_path: Path) -> None:
    index = Index.open(build(server, tmp_path, query_prefix="query: ", document_prefix="passage: "))
    index.search("dog", 1)
    said = [text for request in server.requests for text in request["input"]]
    assert said.count("query: dog") == 1 and "passage: red cat" in said


def test_a_server_that_is_busy_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.replies = [fails(429), fails(500), embeds]
    assert len(Index.open(build(server, tmp_path))) == 3


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (fails(401, "bad key sk-secret"), ServingError, r"401: .*bad key \*\*\*"),
        (fails(404, "no such model"), ServingError, "404"),
        (sends(b"<html>hello</html>"), Unavailable, "no vector a text"),
        (sends({"data": []}), Unavailable, "no vector a text"),
        (sends({"data": [{"index": 0, "embedding": [0.0, 0.0]}]}), Unavailable, "no vector a text"),
        (sends({"data": [{"index": 0, "embedding": "AAAA"}]}), Unavailable, "no vector a text"),
        (sends({"data": [{"index": 0, "embedding": [float("nan"), 1.0]}]}), Unavailable, "no vector a text"),
    ],
)
def test_a_reply_that_gives_no_vectors_is_one_clear_error(
    server: Server, tmp_path: Path, reply: Any, error: type[Exception], said: str
) -> None:
    server.replies = [reply]
    with pytest.raises(error, match=said):
        build(server, tmp_path)
    assert not (tmp_path / "ix").exists()


@pytest.mark.parametrize("other", [lambda handler: embeds(handler, 32), lambda handler: embeds(handler, salt="x")])
def test_another_model_under_the_same_name_is_noticed(server: Server, tmp_path: Path, other: Any) -> None:
    """By the size of its vectors, or by that of one text."""
    folder = build(server, tmp_path)
    server.replies = [other]
    with pytest.raises(ArtifactError, match="not the one that this index was built with"):
        Index.open(folder).search("red", 1)


def test_a_server_that_is_gone_is_unavailable(server: Server, tmp_path: Path) -> None:
    folder = build(server, tmp_path)
    server.shutdown()
    server.server_close()
    with pytest.raises(Unavailable, match="no connection"):
        Index.open(folder).search("red", 1)


def test_a_model_for_an_index_without_vectors_is_refused() -> None:
    with pytest.raises(ConfigError, match="a bm25 index has no vectors"):
        IndexSettings(model="minilm")


def test_ctrl_c_ends_a_build_with_one_line_and_the_same_command_goes_on(server: Server, tmp_path: Path) -> None:
    def stops(handler: Handler) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        cuts(handler)

    (tmp_path / "c.jsonl").write_text('{"title": "", "text": "red cat"}\n')
    command = ["index", "build", str(tmp_path / "c.jsonl"), "--out", str(tmp_path / "ix")]
    command += ["--kind", "dense", "--embeddings", server.url, "--model", "embedder"]
    server.replies = [stops, embeds]
    stopped = CliRunner().invoke(revelator, command)
    assert stopped.exit_code == 130 and not (tmp_path / "ix").exists()
    assert stopped.stderr.endswith("stopped: finished blocks are kept, and the same command goes on\n")
    assert CliRunner().invoke(revelator, command).exit_code == 0 and len(Index.open(tmp_path / "ix")) == 1
