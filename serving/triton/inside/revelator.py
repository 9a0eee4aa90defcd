"""The revelator behind its Triton model: rows of any tasks, grouped so that each task is one pass of the engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import RevelatorError
from serving.models.engine import Engine, never_cancelled
from serving.models.local import complete
from serving.protocols import Completion, Decoding
from serving.triton.inside.batches import run_groups
from serving.triton.repository import ADAPTER, CONTENTS_FILE

LOOK_SECONDS = 0.02


class Client:
    """Who waits for a request. Looked at between tokens, and seldom: a look costs 0.15 ms of message passing."""

    def __init__(self, is_cancelled: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._next_look = clock()
        self._left = False

    def has_left(self) -> bool:
        if not self._left and self._clock() >= self._next_look:
            self._left = self._is_cancelled()
            self._next_look = self._clock() + LOOK_SECONDS
        return self._left


@dataclass(frozen=True)
class Row:
    """One prompt of a batch; `cancelled` says whether its client went away."""

    task: str
    prompt: str
    temperature: float = 0.0
    cancelled: Callable[[], bool] = never_cancelled


class CompletionService:
    """The base and the adapter of a version folder, on a card (`cuda:1`) if one is named. Raises ArtifactError when
    they do not belong together."""

    def __init__(self, folder: Path, decoding: Decoding = "beams", device: str | None = None) -> None:
        release = json.loads((folder / CONTENTS_FILE).read_text(encoding="utf-8"))
        self._decoding = decoding
        adapter = folder / ADAPTER if release.get("files") else None
        self._engine = Engine(release["base"]["folder"], adapter, device=device)

    def complete(self, rows: Sequence[Row]) -> list[Completion | RevelatorError]:
        """One outcome a row, in order; what goes wrong with one task's rows leaves the others alone. Work that no row's
        client waits for any more ends as Cancelled."""
        return run_groups(rows, lambda row: (row.task, row.temperature), self._complete_group)

    def _complete_group(self, task: str, temperature: float, rows: Sequence[Row]) -> Sequence[Completion]:
        return complete(
            self._engine,
            task,
            [row.prompt for row in rows],
            temperature,
            decoding=self._decoding,
            cancelled=lambda: all(row.cancelled() for row in rows),
        )
