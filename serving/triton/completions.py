"""The revelator behind its Triton model: rows of any tasks, grouped so that each task is one pass of the engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import InvalidRequest, RevelatorError, ServingError
from revelator.tasks import TASKS
from serving.engine import Engine
from serving.protocols import Completion
from serving.revelator_model import complete
from serving.triton.repository import ADAPTER, PROMOTION


@dataclass(frozen=True)
class Row:
    """One prompt of a batch."""

    task: str
    prompt: str
    temperature: float = 0.0


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
            groups.setdefault((row.task, row.temperature), []).append(i)
        for (task, temperature), members in groups.items():
            prompts = [rows[i].prompt for i in members]
            outcomes.update(zip(members, self._group(task, prompts, temperature), strict=True))
        return [outcomes[i] for i in range(len(rows))]

    def _group(self, task: str, prompts: Sequence[str], temperature: float) -> Sequence[Completion | RevelatorError]:
        """One pass; when it is refused, a pass a row, so that a prompt that is too long fails alone."""
        if task not in TASKS:
            return [InvalidRequest(f"there is no task {task!r}", hint=f"tasks are {', '.join(TASKS)}")] * len(prompts)
        try:
            return complete(self._engine, task, prompts, temperature)
        except InvalidRequest as error:
            if len(prompts) == 1:
                return [error]
            return [outcome for prompt in prompts for outcome in self._group(task, [prompt], temperature)]
        except RuntimeError as error:  # torch: out of memory, mostly
            return [ServingError(str(error).splitlines()[0], where=f"task {task}")] * len(prompts)
