"""A promotion calls a webhook of MLflow's: a real tracking server, and a receiver on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import pytest

from revelator import promotions, registry
from tests.loopback import serving
from tests.training.toy import write_adapter, write_base

SECRET = "of this test"
DELIVERED: Queue[tuple[dict[str, str], str]] = Queue()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(204)
        self.end_headers()
        DELIVERED.put((dict(self.headers), body))

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_promotion_and_a_rollback_call_the_webhook_with_the_version_that_became_champion(
    tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registry.TRACKING_URI, tracking_server)
    registry.connect(tmp_path / "home")
    base = write_base(tmp_path / "base")
    for seed in (1, 2):
        registry.register_adapter(write_adapter(tmp_path / f"adapter-{seed}", base, seed=seed), "hooked")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Receiver)) as server:
        url = f"http://127.0.0.1:{server.server_port}/champion"
        events = ["model_version_alias.created"]
        hook = registry.open_client().create_webhook("promotions", url, events, secret=SECRET)
        for number in (1, 2):
            promotions.move("hooked", number, promotions.read_standing("hooked"))
        promotions.roll_back("hooked")
        delivered = [DELIVERED.get(timeout=60) for _ in range(3)]
        registry.open_client().delete_webhook(hook.webhook_id)
    told = [json.loads(body) for _, body in delivered]
    assert {(one["entity"], one["action"]) for one in told} == {("model_version_alias", "created")}
    assert {(one["data"]["name"], one["data"]["alias"]) for one in told} == {("hooked", "champion")}
    assert sorted(one["data"]["version"] for one in told) == ["1", "1", "2"]
    headers, body = delivered[0]
    signed = f"{headers['X-MLflow-Delivery-Id']}.{headers['X-MLflow-Timestamp']}.{body}"
    digest = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest()
    assert headers["X-MLflow-Signature"] == f"v1,{base64.b64encode(digest).decode()}"
