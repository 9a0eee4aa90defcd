"""The revelator behind its Triton model: rows of any tasks, grouped so that each task is one pass of the engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import InvalidRequest, RevelatorError, ServingError
from revelator.tasks import TASKS
from serving.engine import Engine
from serving.protocols import Completion
from serving.revelator_model import complete
from serving.triton.repository import ADAPTER, PROMOTION

TEMPERATURES = (0.01, 10.0)  # below, 32-bit softmax overflows; above, all tokens are nearly as likely
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One prompt of a batch."""

    task: str
    prompt: str
    temperature: float = 0.0

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

    def __init__(self, folder: Path) -> None:
        promotion = json.loads((folder / PROMOTION).read_text(encoding="utf-8"))
        self._engine = Engine(promotion["base"]["folder"], folder / ADAPTER)

    def complete(self, rows: Sequence[Row]) -> list[Completion | RevelatorError]:
        """One outcome a row, in order; what goes wrong with one task's rows leaves the others alone."""
        outcomes: dict[int, Completion | RevelatorError] = {}
        groups: dict[tuple[str, float], list[int]] = {}
        for i, row in enumerate(rows):
            if refusal := row.refusal():
                outcomes[i] = refusal
            else:
                groups.setdefault((row.task, row.temperature), []).append(i)
        for (task, temperature), members in groups.items():
            prompts = [rows[i].prompt for i in members]
            outcomes.update(zip(members, self._group(task, prompts, temperature), strict=True))
        return [outcomes[i] for i in range(len(rows))]

    def _group(self, task: str, prompts: Sequence[str], temperature: float) -> Sequence[Completion | RevelatorError]:
        """One pass; when it fails, a pass a row, so that a prompt that is too long or too large fails alone."""
        try:
            return complete(self._engine, task, prompts, temperature)
        except Exception as error:
            if len(prompts) > 1:
                return [outcome for prompt in prompts for outcome in self._group(task, [prompt], temperature)]
            if isinstance(error, RevelatorError):
                return [error]
            log.exception("task %s", task)
            return [ServingError(f"{type(error).__name__}: {error}".splitlines()[0], where=f"task {task}")]
