"""A build that somebody ends."""

from __future__ import annotations

from typing import Any

from rich.progress import Progress, TaskID


class Stopped(Progress):
    """Ends a build as ^C does, once a stage has done so many passages."""

    def __init__(self, stage: str, at: int) -> None:
        super().__init__(disable=True)
        self.stage, self.at = stage, at

    def update(self, task_id: TaskID, **what: Any) -> None:
        super().update(task_id, **what)
        if self.tasks[task_id].description == self.stage and what["completed"] == self.at:
            raise KeyboardInterrupt
