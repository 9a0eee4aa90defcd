"""Runs on disk: one JSON file each, `ID.json`, of which the newest are kept.

An id begins with the time in milliseconds, so ids sort by age; its last five characters are drawn at random. Several
inspectors may share a folder. A run holds questions, answers and documents, so its owner alone may read it.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from revelator.errors import DataError
from revelator.files import write_json
from revelator.trace import Trace

MOST_RUNS = 200
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class StoredRun:
    """One question and what came of it.

    `server` is the address that was asked, `reuse` the id of the run whose answers stood in for what had not changed,
    `error` (JSON of `revelator.wire.write_error`) what ended the question before its trace was finished; `trace_id`
    names its spans where they are sent, `judged` what a person said of it last (`serving.inspector.judging`). `groups`
    are those of who asked, None of the owner of the files.
    """

    id: str
    server: str
    trace: Trace
    reuse: str | None = None
    error: dict[str, Any] | None = None
    trace_id: str = ""
    judged: dict[str, Any] | None = None
    groups: list[str] | None = field(default_factory=list)

    def is_open_to(self, groups: frozenset[str] | None) -> bool:
        """Whether somebody of these groups may read all that the run's caller might."""
        return _may_read(self.groups, groups)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "trace": self.trace.to_json()}

    def summarise(self) -> dict[str, Any]:
        """A line of the list of runs."""
        trace, judged = self.trace, self.judged or {}
        return {
            "id": self.id,
            "server": self.server,
            "question": trace.question,
            "plan": trace.plan,
            "answer": trace.answer,
            "outcome": "failed" if self.error else trace.outcome,
            "version": trace.versions.get("revelator"),
            "by_hand": trace.plan_source == "given",
            "right": judged.get("right"),
            "plan_judged": "plan" in judged,
            "started_at": trace.started_at,
            "wall_ms": trace.wall_ms,
            "groups": self.groups,
        }


def _may_read(own: list[str] | None, groups: frozenset[str] | None) -> bool:
    return groups is None or (own is not None and groups.issuperset(own))


_RUN = TypeAdapter(StoredRun)


class Runs:
    """The runs of one folder; beyond `most` the oldest are removed."""

    def __init__(self, folder: Path, most: int = MOST_RUNS) -> None:
        self.folder = folder
        self.most = most
        self._summaries: dict[str, dict[str, Any]] = {}
        with suppress(OSError):  # another user's folder: nothing can be stored there; saving a run will say so
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)

    def new_id(self) -> str:
        return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(3)[:5]}"

    def save(self, run: StoredRun) -> None:
        """Raises OSError when it cannot be written; nothing half-written stays."""
        write_json(self._path(run.id), run.to_json(), mode=0o600)
        self._summaries.pop(run.id, None)  # a judgement changes it
        for id in self._ids()[self.most :]:
            self._path(id).unlink(missing_ok=True)

    def read(self, id: str, groups: frozenset[str] | None = frozenset()) -> StoredRun:
        """Raises DataError for an id that no run has which somebody of these groups may read (None: the owner of the
        files), and for a file that is damaged."""
        path, missing = self._path(id), DataError(f"there is no run {id}", hint=f"the newest {self.most} are kept")
        if not _ID.fullmatch(id) or not path.is_file():
            raise missing
        try:
            value = from_json(path.read_bytes())  # unlike json.loads it refuses what is nested too deep
            run = _RUN.validate_python({**value, "trace": Trace.from_json(value["trace"]).to_json()})
            json.dumps(run.to_json(), allow_nan=False)  # as a reply will be
        except (OSError, ValueError, KeyError, TypeError, DataError) as error:
            raise DataError("this is no run", where=str(path), hint="remove the file") from error
        if run.id != id:
            raise DataError(f"this is run {run.id}", where=str(path), hint="name the file as the run")
        if not run.is_open_to(groups):
            raise missing
        return run

    def list_summaries(self, groups: frozenset[str] | None = frozenset()) -> list[dict[str, Any]]:
        """Newest first, of the runs that somebody of these groups may read. A file that is no run is left out."""
        known, ids = self._summaries, self._ids()
        self._summaries = {id: known.get(id) or self._summarise(id) for id in ids}
        found = [self._summaries[id] for id in ids if self._summaries[id]]
        return [summary for summary in found if _may_read(summary["groups"], groups)]

    def _summarise(self, id: str) -> dict[str, Any]:
        try:
            return self.read(id, None).summarise()
        except DataError:
            return {}

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}.json"

    def _ids(self) -> list[str]:
        return sorted((p.stem for p in self.folder.glob("*.json") if _ID.fullmatch(p.stem)), reverse=True)
