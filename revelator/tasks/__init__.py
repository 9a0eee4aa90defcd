"""The tasks of the revelator: typed inputs, prompts as data files, strict output parsers."""

from revelator.tasks.inputs import (
    DecomposeInput,
    EndInput,
    RefineInput,
    RelevanceInput,
    RouteInput,
    Step,
    TranslateInput,
)
from revelator.tasks.task import TASKS, Task, prompt_hash

__all__ = [
    "TASKS",
    "DecomposeInput",
    "EndInput",
    "RefineInput",
    "RelevanceInput",
    "RouteInput",
    "Step",
    "Task",
    "TranslateInput",
    "prompt_hash",
]
