"""Whether a home folder is being served, and where: read without the server's own dependencies.

The process that serves holds a lock on the home folder. The kernel releases it however the process ends, so a stale
`serve.json` misleads nobody.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from revelator.files import try_lock

SERVE_JSON = "serve.json"
LOCK = ".serve.lock"


@dataclass(frozen=True)
class RunningServer:
    """What `serve.json` says: process id, addresses, and the version of each model when it was started; the version of
    each index that is searched, and why the one in its folder is not, where it was `refused`."""

    pid: int
    http: str
    grpc: str
    log: str
    models: dict[str, int]
    started: str
    indexes: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def find_running_server(home: Path) -> RunningServer | None:
    """The server of this home folder, if one is up and ready."""
    path = home / SERVE_JSON
    if not path.exists():
        return None
    with try_lock(home / LOCK, shared=True) as free:
        if free:
            return None
    try:
        return RunningServer(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
