"""The loopback HTTP endpoint of `revelator model deploy --watch`: GET /metrics, and POST /hint for MLflow's webhooks.

MLflow signs a delivery as the Standard Webhooks convention says: HMAC-SHA256 over `id.timestamp.body`, in base64 after
`v1,`, with the webhook's secret, which is read here from REVELATOR_WEBHOOK_SECRET. A hint says only that something
changed; what, the loop asks the registry.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from revelator.errors import ConfigError

PREFIX = "revelator_deploy"
SECRET = "REVELATOR_WEBHOOK_SECRET"
LOOPBACK = "127.0.0.1"
MOST_BYTES = 64 * 1024  # a delivery about an alias has some 300
OLDEST_SECONDS = 300  # a delivery that is sent again later counts for nothing


class Metrics:
    """The loop's state for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.desired = self._gauge("desired_version", "Version that the alias names.")
        self.live = self._gauge("live_version", "Version that takes the traffic; 0: none.")
        self.in_sync = self._gauge("in_sync", "1 when the last look found or made them the same.")
        self.deploying = self._gauge("deploying", "1 while a version is being deployed.")
        self.last_look = self._gauge("last_look_timestamp_seconds", "When a look last ended without an error.")
        self.wait = self._gauge("wait_seconds", "Seconds between the last look and the next.")
        self.failing = self._gauge("consecutive_failures", "Failures since the last success.")
        self.deploys = self._counter("deploys", "Deploys that were finished.")
        self.failures = self._counter("failures", "Looks that ended in an error, by its kind.", "error")
        self.hints = self._counter("hints", "Webhook deliveries.", "outcome")

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, namespace=PREFIX, registry=self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, namespace=PREFIX, registry=self.registry)


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    signed = f"{delivery}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest()).decode()


def is_genuine(secret: str, headers: Mapping[str, str] | Message, body: bytes, now: float) -> bool:
    """Whether a delivery is signed with `secret` and was signed within the last `OLDEST_SECONDS` of `now`."""
    delivery, timestamp = headers.get("X-MLflow-Delivery-Id", ""), headers.get("X-MLflow-Timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(now - int(timestamp)) > OLDEST_SECONDS:
        return False
    given = headers.get("X-MLflow-Signature", "")
    return hmac.compare_digest(given.encode(), signature(secret, delivery, timestamp, body).encode())


@contextmanager
def hint_server(port: int, hint: threading.Event, metrics: Metrics) -> Iterator[str]:
    """Serves on loopback until the end of the block; the address. ConfigError when the port is taken."""
    secret = os.environ.get(SECRET, "")

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a request to arrive

        def do_GET(self) -> None:
            if self.path != "/metrics":
                return self._reply(404, b"GET /metrics, POST /hint\n")
            self._reply(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if self.path != "/hint" or not length.isdigit() or int(length) > MOST_BYTES:
                return self._reply(400, b"POST /hint with a body of at most 64 KiB\n")
            body = self.rfile.read(int(length))
            genuine = bool(secret) and is_genuine(secret, self.headers, body, time.time())
            metrics.hints.labels("accepted" if genuine else "refused").inc()
            if not genuine:
                return self._reply(403, f"not signed with {SECRET}\n".encode())
            hint.set()
            self._reply(204, b"")

        def _reply(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise ConfigError(
            f"port {port}: {error.strerror}", where="--port", hint="name another, or 0 for a free one"
        ) from error
    with server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
