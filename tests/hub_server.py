"""A Hugging Face Hub on loopback: the data sets or models that lie in a folder, as OWNER/NAME/FILE, or as
OWNER/NAME@REVISION/FILE at a revision of their own.

It speaks what `huggingface_hub` and `datasets` ask for when they read: what a repository is, its files, and the bytes
of one, whole or by range. A program finds it by `environment`: every request for the address in HF_ENDPOINT, and for
the Hub's other hosts, goes through this server as its proxy, so that none leaves the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.loopback import serving

COMMIT = "c0ffee" + "0" * 34
API = re.compile(r"/api/(?:datasets|models)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)/?(.*))?")
FILE = re.compile(r"(?:/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
PATIENCE = 240  # seconds until a reader that never lets go fails the test


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if asked := API.fullmatch(path):
            self._tells(*self._find(asked[1], asked[3]), asked[2], asked[4] or "")
        elif asked := FILE.fullmatch(path):
            folder, commit = self._find(asked[1], asked[2])
            self._gives(folder / asked[3], commit)
        else:
            self._sends(404, b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _find(self, name: str, revision: str | None) -> tuple[Path, str]:
        """The folder of a repository, and its commit."""
        own = self.server.root / f"{name}@{revision}"
        return (own, str(revision)) if own.is_dir() else (self.server.root / name, COMMIT)

    def _tells(self, repo: Path, commit: str, what: str | None, below: str) -> None:
        if not repo.is_dir():
            return self._sends(404, b"", X_Error_Code="RepoNotFound")
        files = sorted(path for path in repo.rglob("*") if path.is_file())
        names = [str(path.relative_to(repo)) for path in files]
        about: Any = {"id": "/".join(repo.parts[-2:]), "sha": commit, "siblings": [{"rfilename": n} for n in names]}
        if what == "tree":
            about = [
                {"type": "file", "path": name, "size": path.stat().st_size, "oid": _tag(path)}
                for name, path in zip(names, files, strict=True)
                if path.is_relative_to(repo / below)
            ]
        return self._sends(200, json.dumps(about).encode(), Content_Type="application/json")

    def _gives(self, path: Path, commit: str) -> None:
        if not path.is_file():
            return self._sends(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        content, told = path.read_bytes(), {"ETag": f'"{_tag(path)}"', "X_Repo_Commit": commit}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        if not asked:
            return self._sends(200, content, **told)
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        told["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
        return self._sends(206, content[first : last + 1], after=first, **told)

    def _sends(self, status: int, body: bytes, after: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "HEAD":
            return
        free = max(0, self.server.held_from - after)
        try:
            self.wfile.write(body[:free])
            if body[free:] and self.server.released.wait(PATIENCE):
                self.wfile.write(body[free:])
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Hub(ThreadingHTTPServer):
    """The repositories below `root`. Bytes of a file from `held_from` on are sent once `released` is set."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.held_from = 1 << 62
        self.released = threading.Event()

    def environment(self, home: Path) -> dict[str, str]:
        """The environment of a program that takes this for the Hub, and keeps what it fetches in `home`."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        own = {name: value for name, value in own.items() if not name.lower().endswith("_proxy")}
        proxy = f"http://127.0.0.1:{self.server_port}"
        return own | {"HF_ENDPOINT": "http://hub.test", "HF_HOME": str(home), "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}


def _tag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def running(root: Path) -> AbstractContextManager[Hub]:
    hub = Hub(root)
    return serving(hub, hub.released.set)
