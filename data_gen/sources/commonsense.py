"""CommonsenseQA as published (Talmor et al., 2019): questions that are answered from what everyone knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from revelator.errors import DataError


def read_commonsense(path: Path | str, source: str = "commonsenseqa", licence: str = "MIT") -> Iterator[Outcome]:
    """Straightforward questions, without their choices; the answer is the right choice, where the key is published."""
    return read_annotated(path, lambda row: _annotate(row, source, licence))


def _annotate(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    inner = row["question"] if isinstance(row["question"], dict) else row
    asked = fields.question(inner, "stem", "question")
    choices = {choice["label"]: choice["text"] for choice in fields.objects(inner["choices"])}
    key = row.get("answerKey") or ""
    if key and key not in choices:
        raise DataError(f"field 'answerKey' must be one of {', '.join(choices)}, found {key!r}")
    return AnnotatedQuestion(
        id=fields.identity(row, source, asked, "id"),
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="straightforward",
        answers=(choices[key],) if key else (),
    )
