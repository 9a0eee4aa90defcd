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
    """Answers each request with the next reply of the server's list; the last one stays."""

    server: Server
    body: dict[str, Any]

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
        self.choosing = threading.Lock()
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


def says(content: str | None) -> Reply:
    body = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38},
    }
    return lambda handler: handler.send(200, json.dumps(body).encode())


def fails(status: int, message: str = "no") -> Reply:
    body = json.dumps({"error": {"message": message}}).encode()
    return lambda handler: handler.send(status, body, retry_after_ms="1")


def cuts(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def running() -> AbstractContextManager[Server]:
    server = Server()
    return serving(server, server.release.set)
