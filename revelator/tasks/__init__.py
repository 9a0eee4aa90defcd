"""The tasks of the revelator: typed inputs, prompts as data files, strict output parsers."""

from revelator.tasks.task import (
    PLANNING,
    TASKS,
    TRANSLATE_ART,
    TRANSLATE_BNF,
    TRANSLATE_LOGIC,
    QuestionInput,
    ReadAnswer,
    ReadInput,
    RelevanceInput,
    SelectInput,
    Step,
    StepsInput,
    Task,
    prompt_hash,
    translate_task,
)

__all__ = [
    "PLANNING",
    "TASKS",
    "TRANSLATE_ART",
    "TRANSLATE_BNF",
    "TRANSLATE_LOGIC",
    "QuestionInput",
    "ReadAnswer",
    "ReadInput",
    "RelevanceInput",
    "SelectInput",
    "Step",
    "StepsInput",
    "Task",
    "prompt_hash",
    "translate_task",
]
