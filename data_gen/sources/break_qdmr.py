"""Break as published (Wolfson et al., 2020): `question_text` and a QDMR `decomposition`, of low or of high level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen import qdmr
from data_gen.annotated import AnnotatedQuestion
from data_gen.annotation import UnplannableError, plan
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from revelator import plans

ABOUT_PICTURES = "NLVR2"  # statements about two pictures that are shown beside them: no question is asked


def read_break(path: Path | str, source: str = "break", licence: str = "MIT") -> Iterator[Outcome]:
    """Questions with a plan and neither steps nor answers, which Break does not tell; one leaf is route single."""
    return read_annotated(path, lambda row: _annotate(row, source, licence))


def _annotate(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    asked = fields.question(row, "question_text")
    identity = fields.identity(row, source, asked, "question_id")
    if identity.split(":")[1].startswith(ABOUT_PICTURES):
        raise UnplannableError("a statement about two pictures, no question")
    steps = qdmr.gold_steps(fields.text(row, "decomposition"))
    planned = plan(asked, steps, identity)
    many = len(steps) > 1
    return AnnotatedQuestion(
        id=identity,
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="complex" if many else "single",
        expression=planned.expression if many else plans.render(plans.Atomic(asked)),
        entities=planned.entities,
    )
