"""Rows of an evaluation whose plan gave the right answer: executed over the question's gold passages, it gave gold's.

A planner, such as a language model that teaches, plans published questions in `revelator eval run` with `index: gold`
(evaluation/configs/executed.yaml). Plans that gave the gold answer are kept as gold, with what their steps answered,
and all others are dropped by reason. It is a filter and no proof: two passages often give the answer away. Of
HotpotQA's plans that passed a judge called .61 right, of those that did not .30 (docs/results.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from data_gen.questions import QUESTIONS, AnnotatedQuestion, AnnotatedStep, DroppedError
from data_gen.sources.rows import ReadResult, read_annotated
from revelator.errors import DataError, ExpressionError
from revelator.plans import Atomic, parse, render
from revelator.plans.language import BNF
from revelator.tasks import TRANSLATE_BNF

RUN = "run.json"  # beside the rows: what was run
TASKS = ("refine", "end", TRANSLATE_BNF.name)  # relevance is not taught: a passage may hold an answer by chance


def read_executed(path: Path | str) -> Iterator[ReadResult]:
    """The questions of a run's folder, or of its `questions.jsonl`, that a plan of several steps answered as gold does
    (exact match); other rows are skipped with the reason. Raises DataError for a record of the run that is broken."""
    place = Path(path)
    file = place / QUESTIONS if place.is_dir() else path
    return read_annotated(file, partial(_annotate_executed, _name_teacher(Path(file).with_name(RUN))))


def _name_teacher(run: Path) -> str:
    """Who planned, as the run's record says; "unknown" without one."""
    if not run.is_file():
        return "executed:unknown"
    try:
        made = json.loads(run.read_text(encoding="utf-8"))["adapter"]
        planner = made.get("planner", "").partition(" at ")[0] or made["base"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        hint = "give the folder that `revelator eval run` wrote"
        raise DataError(f"the run's record cannot be read: {error!r}", where=str(run), hint=hint) from error
    return f"executed:{planner}"


def _annotate_executed(teacher: str, row: dict[str, Any]) -> AnnotatedQuestion:
    trace, scores = row["trace"], row["scores"]
    if not row["plan"] or trace["plan_language"] != BNF.name:
        raise DroppedError("executed: answered without a plan")
    if trace["plan_source"] != "model" or trace["degraded"]:
        raise DroppedError("executed: the plan did not give the answer")
    if scores.get("em") != 1:
        raise DroppedError("executed: another answer than gold's")
    try:
        plan = parse(row["plan"])
    except ExpressionError as error:
        raise DroppedError("executed: a plan that today's language does not read") from error
    if isinstance(plan, Atomic):
        raise DroppedError("a plan of one step, which says the question again")
    asked = [node for node in trace["nodes"] if node["kind"] == "atomic"]
    is_whole = all(node["asked"] and node["answers"] for node in asked)  # a list with a gap would teach to stop there
    steps = [AnnotatedStep(node["asked"], tuple(node["answers"])) for node in asked if is_whole]
    return AnnotatedQuestion(
        id=f"executed:{row['id']}",
        source="executed",
        licence="unknown",
        split="",
        question=row["question"],
        route="complex",
        expression=render(plan),
        steps=tuple(dict.fromkeys(steps)),
        answers=tuple(row["predictions"]),
        teacher=teacher,
        tasks=TASKS,
    )
