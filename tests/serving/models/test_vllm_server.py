"""What a deploy asks of a vLLM server on another machine, whose base lies in no folder of this one."""

from __future__ import annotations

import json
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from revelator.artifact import write_manifest
from revelator.errors import ArtifactError
from serving.models.vllm_server import VllmServer
from tests.loopback import serving


class Elsewhere(ThreadingHTTPServer):
    """Lists a base at `root` and an adapter on it, as vLLM does, and keeps what it is asked to load."""

    def __init__(self, root: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models = [{"id": "base", "root": root, "parent": None}, {"id": "other", "root": "/a", "parent": "base"}]
        self.loaded: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Elsewhere

    def do_GET(self) -> None:
        self._reply({"data": self.server.models})

    def do_POST(self) -> None:
        self.server.loaded.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["lora_name"])
        self._reply({})

    def _reply(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("root", "fits"),
    [
        ("Qwen/Qwen3-0.6B", True),
        ("/srv/models/qwen3-0.6b", True),
        ("Qwen/Qwen3-1.7B", False),
        ("/srv/models/mine", False),
    ],
)
def test_a_base_that_lies_elsewhere_is_told_by_its_name(tmp_path: Path, root: str, fits: bool) -> None:
    write_manifest(tmp_path, base_name="Qwen/Qwen3-0.6B", base_digest="0" * 64, data_digest="", run_id="")
    with serving(Elsewhere(root)) as server:
        refused = nullcontext() if fits else pytest.raises(ArtifactError, match="was trained on Qwen")
        with refused:
            VllmServer(f"http://127.0.0.1:{server.server_port}").load(3, tmp_path)
        assert server.loaded == (["revelator-3"] if fits else [])
