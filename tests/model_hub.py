"""The Hugging Face Hub's side of an upload, on loopback: repositories that are made and committed to.

It speaks what `huggingface_hub` asks for: make a repository, check a card's front matter, say which files are large,
take large files by Git LFS, and take a commit as NDJSON. Tokens and the organisations that each may write to are given.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.loopback import serving

COMMIT = "c0ffee" + "0" * 34
LARGE = (".safetensors", ".gguf", ".npz")


@dataclass
class Repo:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)
    commits: int = 0


class Handler(BaseHTTPRequestHandler):
    server: ModelHub

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"] or 0)))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.large[hashlib.sha256(body).hexdigest()] = body
        self._send(200, {})

    def _answer(self, body: bytes) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        orgs = self.server.tokens.get((self.headers["Authorization"] or "").removeprefix("Bearer "))
        if orgs is None:
            return self._send(401, {"error": "Invalid credentials in Authorization header"})
        if path == "/api/repos/create":
            return self._make_repo(json.loads(body), orgs)
        if path == "/api/validate-yaml":
            front = json.loads(body)["content"].split("---\n")[1]
            return self._send(200 if isinstance(yaml.safe_load(front), dict) else 400, {"errors": [], "warnings": []})
        found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/.]+)(?:\.git)?(?:/(.+))?", path)
        repo = self.server.repos.get(found[1]) if found else None
        if found is None or repo is None:
            return self._send(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        if found[2] is None:
            return self._send(200, {"id": found[1], "private": repo.private, "sha": COMMIT, "siblings": []})
        if found[1].partition("/")[0] not in orgs:
            return self._send(403, {"error": "you are no member of this organization"})
        return self._change(found[1], repo, found[2], body)

    def _make_repo(self, asked: dict[str, Any], orgs: set[str]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] not in orgs:
            return self._send(403, {"error": f"you may not create a model under the namespace {asked['organization']}"})
        if name in self.server.repos:
            return self._send(409, {"error": "You already created this model repo", "url": f"{self.server.url}/{name}"})
        self.server.repos[name] = Repo(asked.get("visibility") == "private")
        return self._send(200, {"url": f"{self.server.url}/{name}", "name": name})

    def _change(self, name: str, repo: Repo, what: str, body: bytes) -> None:
        if what == "preupload/main":
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": _mode(f["path"]), "shouldIgnore": False, "oid": None} for f in files
            ]
            return self._send(200, {"files": modes})
        if what == "info/lfs/objects/batch":
            wanted = json.loads(body)["objects"]
            objects = [one | {"actions": {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}"}}} for one in wanted]
            return self._send(200, {"transfer": "basic", "objects": objects})
        assert what == "commit/main", what
        if self.server.fails_commit:
            return self._send(400, {"error": "a file is not allowed"})
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                repo.files[value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                repo.files[value["path"]] = self.server.large[value["oid"]]
                repo.large.add(value["path"])
        repo.commits += 1
        return self._send(200, {"commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT})

    def _send(self, status: int, value: Any, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        if "error" in value:
            headers["X-Error-Message"] = value["error"]
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class ModelHub(ThreadingHTTPServer):
    """`tokens` are those that count, each with the organisations that it may write to; `asked` are the paths of all
    requests."""

    daemon_threads = True

    def __init__(self, tokens: dict[str, set[str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tokens = tokens
        self.repos: dict[str, Repo] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.fails_commit = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def make_environment(url: str, home: Path, **more: str) -> dict[str, str]:
    """The environment of a program that takes the server at `url` for the Hub, and has no token of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE"))}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return kept | {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **more}


def _mode(path: str) -> str:
    return "lfs" if path.endswith(LARGE) else "regular"


def running(tokens: dict[str, set[str]]) -> AbstractContextManager[ModelHub]:
    return serving(ModelHub(tokens))
