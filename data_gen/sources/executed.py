"""Rows of an evaluation whose plan proved itself: executed over the question's gold passages, it gave the gold answer.

A planner, such as a language model that teaches, plans published questions in `revelator eval run` with `index: gold`
(evaluation/configs/executed.yaml). What is right at the end was seldom planned wrongly, so these plans are kept as gold
with what their steps answered, and all others are dropped by reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from data_gen.questions import QUESTIONS, AnnotatedQuestion, AnnotatedStep, DroppedError
from data_gen.sources.rows import ReadResult, read_annotated
from revelator.plans import Atomic, parse, render
from revelator.tasks import TRANSLATE_BNF

RUN = "run.json"  # beside the rows: what was run
TASKS = ("route", "refine", "end", TRANSLATE_BNF.name)  # a share of an answer may be chance: relevance is not taught


def read_executed(path: Path | str) -> Iterator[ReadResult]:
    """The questions of a run's folder, or of its `questions.jsonl`, that a plan of several steps answered as gold does
    (exact match); other rows are skipped with the reason."""
    place = Path(path)
    file = place / QUESTIONS if place.is_dir() else place
    return read_annotated(file, partial(_annotate_executed, f"executed:{_name_planner(file.with_name(RUN))}"))


def _name_planner(run: Path) -> str:
    """Who planned, as the run's record says; "unknown" without one."""
    if not run.is_file():
        return "unknown"
    planner = json.loads(run.read_text(encoding="utf-8"))["adapter"]
    return planner.get("planner") or planner.get("version") or "unknown"


def _annotate_executed(teacher: str, row: dict[str, Any]) -> AnnotatedQuestion:
    trace, scores = row["trace"], row["scores"]
    if not row["plan"] or trace["plan_language"] != TRANSLATE_BNF.name.removeprefix("translate_"):
        raise DroppedError("executed: answered without a plan")
    if trace["plan_source"] != "model" or trace["degraded"]:
        raise DroppedError("executed: the plan did not give the answer")
    if scores.get("em") != 1:
        raise DroppedError("executed: another answer than gold's")
    plan = parse(row["plan"])
    if isinstance(plan, Atomic):
        raise DroppedError("a plan of one step, which says the question again")
    steps = [
        AnnotatedStep(node["asked"], tuple(node["answers"]))
        for node in trace["nodes"]
        if node["kind"] == "atomic" and node["asked"] and node["answers"]
    ]
    return AnnotatedQuestion(
        id=f"executed:{row['id']}",
        source="executed",
        licence="unknown",
        split="",
        question=row["question"],
        route=row["route"] or "complex",
        expression=render(plan),
        steps=tuple(dict.fromkeys(steps)),
        answers=tuple(row["predictions"]),
        teacher=teacher,
        tasks=TASKS,
    )
