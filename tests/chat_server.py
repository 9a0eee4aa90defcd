"""A real HTTP server on loopback that speaks the chat protocol, with faults."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.loopback import serving

Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next reply of the server's list; the last one stays. `models` are listed on
    request, each with its owner; without them the server has no list."""

    server: Server
    body: dict[str, Any]

    def do_GET(self) -> None:
        models = self.server.models
        rows = [{"id": name, "object": "model", "owned_by": owner} for name, owner in (models or {}).items()]
        self.send(200 if models else 404, json.dumps({"object": "list", "data": rows}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.body = json.loads(body)
        self.server.requests.append({"path": self.path, "key": self.headers["Authorization"], **self.body})
        replies = self.server.replies
        with self.server.choosing:  # two that come at once take one reply each
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
        reply(self)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.replies: list[Reply] = []
        self.models: dict[str, str] = {}
        self.choosing = threading.Lock()
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


def write_reading(*answers: str, sentence: int = 0) -> str:
    """The JSON in which a language model says what it has read; without answers, that it has not found any."""
    kind = {0: "unknown", 1: "value"}.get(len(answers), "list")
    kind = "verdict" if answers in (("yes",), ("no",)) else kind
    facts = {"facts": ""} if kind == "verdict" else {}
    rest = {**facts, "answers": answers, "sentence": sentence} if answers else {}
    return json.dumps({"reply": {"kind": kind, **rest}})


def says(content: str | None, **choice: Any) -> Reply:
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}, **choice}
        ],
        "usage": {"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38},
    }
    return lambda handler: handler.send(200, json.dumps(body).encode())


def streams(*pieces: str, finish: str | None = "stop", then: Reply = lambda handler: None) -> Reply:
    """A reply that comes in pieces, as the request wants it; `then` is what happens before its end."""

    def reply(handler: Handler) -> None:
        assert handler.body["stream"]
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        head = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        last = {"index": 0, "delta": {}, "finish_reason": finish}
        usage = {"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38}

        def write(**fields: Any) -> None:
            handler.wfile.write(f"data: {json.dumps({**head, **fields})}\n\n".encode())
            handler.wfile.flush()

        for piece in pieces:
            write(choices=[{"index": 0, "delta": {"content": piece}, "finish_reason": None}])
        then(handler)
        if finish:
            write(choices=[last])
        write(choices=[], usage=usage)
        handler.wfile.write(b"data: [DONE]\n\n")

    return reply


def fails(status: int, message: str = "no", **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message}}).encode()
    return lambda handler: handler.send(status, body, **(headers or {"retry_after_ms": "1"}))


def cuts(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def cuts_inside(handler: Handler) -> None:
    """Breaks the connection in the middle of a reply."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"mess')
    handler.wfile.flush()
    cuts(handler)


def running() -> AbstractContextManager[Server]:
    server = Server()
    return serving(server, server.release.set)
