"""The revelator behind its Triton model: rows of any tasks, grouped so that each task is one pass of the engine."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import Cancelled, InvalidRequest, RevelatorError, ServingError
from revelator.tasks import TASKS
from serving.engines.engine import Engine, never
from serving.engines.revelator_model import Decoding, complete
from serving.protocols import Completion
from serving.triton.repository import ADAPTER, RELEASE

TEMPERATURES = (0.01, 10.0)  # below, 32-bit softmax overflows; above, all tokens are nearly as likely
LOOK_SECONDS = 0.02
log = logging.getLogger(__name__)


class Client:
    """Who waits for a request. Looked at between tokens, and seldom: a look costs 0.15 ms of message passing."""

    def __init__(self, is_cancelled: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._next_look = clock()
        self._left = False

    def left(self) -> bool:
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
    cancelled: Callable[[], bool] = never

    def refusal(self) -> InvalidRequest | None:
        """Why no model can complete this."""
        if self.task not in TASKS:
            return InvalidRequest(f"there is no task {self.task!r}", hint=f"tasks are {', '.join(TASKS)}")
        if not self.prompt:
            return InvalidRequest("the prompt is empty")
        low, high = TEMPERATURES
        if self.temperature != 0 and not low <= self.temperature <= high:
            return InvalidRequest(f"the temperature must be 0, or {low:g} to {high:g}, not {self.temperature:g}")
        return None


class Completions:
    """The base and the adapter of a version folder. Raises ArtifactError when they do not belong together."""

    def __init__(self, folder: Path, decoding: Decoding = "grammar") -> None:
        release = json.loads((folder / RELEASE).read_text(encoding="utf-8"))
        self._decoding = decoding
        self._engine = Engine(release["base"]["folder"], folder / ADAPTER)

    def complete(self, rows: Sequence[Row]) -> list[Completion | RevelatorError]:
        """One outcome a row, in order; what goes wrong with one task's rows leaves the others alone. Work that no row's
        client waits for any more ends as Cancelled."""
        outcomes: dict[int, Completion | RevelatorError] = {}
        groups: dict[tuple[str, float], list[int]] = {}
        for i, row in enumerate(rows):
            if refusal := row.refusal():
                outcomes[i] = refusal
            else:
                groups.setdefault((row.task, row.temperature), []).append(i)
        for members in groups.values():
            outcomes.update(zip(members, self._group([rows[i] for i in members]), strict=True))
        return [outcomes[i] for i in range(len(rows))]

    def _group(self, rows: Sequence[Row]) -> Sequence[Completion | RevelatorError]:
        """Rows of one task and temperature in one pass; when it fails, a pass a row, so that a prompt that is too long
        or too large fails alone."""
        task, prompts, temperature = rows[0].task, [row.prompt for row in rows], rows[0].temperature
        try:
            return complete(
                self._engine,
                task,
                prompts,
                temperature,
                decoding=self._decoding,
                cancelled=lambda: all(row.cancelled() for row in rows),
            )
        except RevelatorError as error:
            failed = error.with_traceback(None)  # whose frames hold the tensors of the pass
        except Exception as error:
            log.exception("task %s, %d rows", task, len(rows))
            failed = ServingError(f"{type(error).__name__}: {error}".splitlines()[0], where=f"task {task}")
        if len(rows) == 1 or isinstance(failed, Cancelled):
            return [failed] * len(rows)
        return [outcome for row in rows for outcome in self._group([row])]
