"""What an endpoint has answered, kept on disk: an answer that was paid for is never asked for again.

One SQLite file in WAL mode; an answer is on the disk before it is used, so a process that is killed loses only calls
that had no answer yet. The key is a digest of what decides an answer: model, prompt and parameters, not the address.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from revelator.errors import DataError
from revelator.files import sha256_text

WAIT = 30.0  # seconds for another process that is writing


@dataclass(frozen=True)
class Reply:
    """A model's text, the tokens that it was charged for, and why it ended (`stop`, or `length` if it was cut)."""

    text: str
    tokens_in: int
    tokens_out: int
    finish: str


class Cache:
    """Replies by request. One event loop, or one thread, at a time; several processes may share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._clear_errors():
            self._store = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
            self._store.execute("PRAGMA journal_mode=WAL")
            self._store.execute("PRAGMA synchronous=FULL")
            self._store.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, request TEXT, reply TEXT)")

    def get(self, request: Mapping[str, Any]) -> Reply | None:
        with self._clear_errors():
            row = self._store.execute("SELECT reply FROM calls WHERE key = ?", (_key(request),)).fetchone()
        return Reply(**json.loads(row[0])) if row else None

    def put(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Returns when the reply is on the disk."""
        values = (_key(request), _canonical(request), json.dumps(vars(reply), ensure_ascii=False))
        with self._clear_errors():
            self._store.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", values)

    def __len__(self) -> int:
        with self._clear_errors():
            return int(self._store.execute("SELECT count(*) FROM calls").fetchone()[0])

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = "free space if the disk is full; a damaged file must be moved away, its answers are then asked again"
            raise DataError(f"the cache of answers: {error}", where=str(self.path), hint=hint) from error


def _key(request: Mapping[str, Any]) -> str:
    return sha256_text(_canonical(request))


def _canonical(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, ensure_ascii=False)
