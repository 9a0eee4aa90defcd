"""The tasks of the revelator: typed inputs, prompts as data files, strict output parsers."""

from revelator.tasks.task import (
    TASKS,
    TRANSLATE_ART,
    TRANSLATE_BNF,
    TRANSLATE_LOGIC,
    DecomposeInput,
    EndInput,
    RefineInput,
    RelevanceInput,
    RouteInput,
    Step,
    Task,
    TranslateInput,
    prompt_hash,
    translate_task,
)

__all__ = [
    "TASKS",
    "TRANSLATE_ART",
    "TRANSLATE_BNF",
    "TRANSLATE_LOGIC",
    "DecomposeInput",
    "EndInput",
    "RefineInput",
    "RelevanceInput",
    "RouteInput",
    "Step",
    "Task",
    "TranslateInput",
    "prompt_hash",
    "translate_task",
]
