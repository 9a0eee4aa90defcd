"""An HTTP server on loopback that speaks SPARQL and three search APIs, with faults."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyoxigraph as ox


@dataclass
class Web:
    """The server. `replies` maps a path to what is answered there: a JSON value, bytes, a status, a redirect target
    (a string), all three of status, headers and body, or an event that is waited for. `seen` keeps each request's path,
    parameters or body, and headers."""

    replies: dict[str, Any] = field(default_factory=dict)
    seen: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)
    store: ox.Store | None = None
    started: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def reply(self, path: str, sent: Any, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.seen.append((path, sent, headers))
        self.started.set()
        reply = self.replies.get(path, 404)
        if isinstance(reply, threading.Event):
            reply.wait(30)
            return 200, {}, b"{}"
        if path == "/sparql" and self.store is not None:
            solutions: Any = self.store.query(sent["query"][0])
            kind = ox.QueryResultsFormat.JSON
            return 200, {"Content-Type": kind.media_type}, solutions.serialize(format=kind)
        if isinstance(reply, int):
            secret = next((v for k, v in headers.items() if k.lower() in ("x-api-key", "x-subscription-token")), "")
            return reply, {}, f"refused, key was {secret}".encode()
        if isinstance(reply, str):
            return 302, {"Location": reply}, b""
        if isinstance(reply, tuple):
            return reply
        return (
            200,
            {"Content-Type": "application/json"},
            reply if isinstance(reply, bytes) else json.dumps(reply).encode(),
        )


class Handler(BaseHTTPRequestHandler):
    web: Web

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self._answer(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        is_json = self.headers["Content-Type"] == "application/json"
        self._answer(self.path, json.loads(body) if is_json else parse_qs(body))

    def _answer(self, path: str, sent: Any) -> None:
        status, headers, body = self.web.reply(path, sent, dict(self.headers))
        try:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_web() -> Iterator[Web]:
    web = Web()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"web": web})) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()  # seconds between polls
        web.url = f"http://127.0.0.1:{server.server_port}"
        yield web
        for reply in web.replies.values():
            if isinstance(reply, threading.Event):
                reply.set()
        server.shutdown()
