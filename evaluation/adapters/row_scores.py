"""The scores of one row of a set: what a model wrote, held against gold by the rules of its task. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import asdict

from evaluation.metrics.answers import normalise
from evaluation.metrics.plans import plan_score, query_score, tree_score
from revelator.errors import TaskOutputError
from revelator.plans import art, logic, parse
from revelator.rows import Row
from revelator.tasks import TASKS


def row_values(row: Row, output: str) -> dict[str, bool]:
    """The scores of one row's output, by name; the same names for every row of a task."""
    if row.label:
        return {"accuracy": output == row.label}
    gold = json.loads(row.gold)
    if row.task == "translate_bnf":
        question, names = TASKS[row.task].question(row.prompt), json.loads(row.entities)
        return asdict(plan_score(output, parse(gold), question, names))
    if row.task == "translate_logic":
        return asdict(query_score(output, logic.parse(gold)))
    if row.task == "translate_art":
        return asdict(tree_score(output, art.parse(gold)))
    try:
        written = TASKS[row.task].parse(output)
    except TaskOutputError:
        return {"equal": False}
    return {"equal": _key(written) == _key(gold)}


def _key(value: str | list[str]) -> list[str]:
    return sorted(map(normalise, [value] if isinstance(value, str) else value))
