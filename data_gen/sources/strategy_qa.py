"""StrategyQA as published (Geva et al., 2021): yes/no questions, decompositions with `#n` for earlier answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion
from data_gen.annotation import GoldStep, UnplannableError, plan
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from revelator.errors import DataError


def read_strategy(path: Path | str, source: str = "strategyqa", licence: str = "MIT") -> Iterator[Outcome]:
    """Complex questions with a plan; the answers of the steps are not told, so there are none."""
    return read_annotated(path, lambda row: _annotate(row, source, licence))


def _annotate(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    asked = fields.question(row)
    steps = fields.nested(row, "decomposition")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step.strip() for step in steps):
        raise DataError(f"field 'decomposition' must be a list of questions, found {row['decomposition']!r:.60}")
    if not isinstance(row["answer"], bool):
        raise DataError(f"field 'answer' must be true or false, found {row['answer']!r:.60}")
    if len(steps) == 1:
        raise UnplannableError("a decomposition of one step, which says the question again")
    identity = fields.identity(row, source, asked, "qid", "id")
    planned = plan(asked, [GoldStep("", text=" ".join(step.split())) for step in steps], identity)
    return AnnotatedQuestion(
        id=identity,
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="complex",
        expression=planned.expression,
        answers=("yes" if row["answer"] else "no",),
        entities=planned.entities,
    )
