"""An OTLP receiver on loopback: spans as they come, in protobuf from the service and in JSON from Triton."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]


@dataclass
class Receiver:
    url: str = ""
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes, is_json: bool) -> None:
        sent = json.loads(body) if is_json else MessageToDict(ExportTraceServiceRequest.FromString(body))
        with self.arrived:
            self.bodies.append(body)
            self.spans += [_span(of, one, is_json) for of, one in _each(sent)]
            self.arrived.notify_all()

    def when(self, is_so: Callable[[list[Span]], bool], seconds: float = 60.0) -> list[Span]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: is_so(self.spans), seconds), self.spans
            return list(self.spans)


def _each(sent: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in sent["resourceSpans"]:
        named = {a["key"]: a["value"].get("stringValue", "") for a in resource["resource"]["attributes"]}
        for scope in resource["scopeSpans"]:
            for one in scope["spans"]:
                yield named["service.name"], one


def _span(service: str, one: dict[str, Any], is_json: bool) -> Span:
    ids = [one.get(name, "") for name in ("traceId", "spanId", "parentSpanId")]
    if not is_json:  # protobuf's own JSON has bytes in base64
        ids = [base64.b64decode(id).hex() for id in ids]
    attributes = {a["key"]: _value(a["value"]) for a in one.get("attributes", ())}
    return Span(service, one["name"], *ids, attributes)


def _value(value: dict[str, Any]) -> Any:
    """An attribute's value: JSON has whole numbers as texts, and lists one level deeper."""
    [(kind, held)] = value.items()
    if kind == "arrayValue":
        return [_value(one) for one in held.get("values", ())]
    return int(held) if kind == "intValue" else held


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(body, "json" in self.headers["Content-Type"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        yield receiver
        server.shutdown()
