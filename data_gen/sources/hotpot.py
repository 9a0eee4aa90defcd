"""HotpotQA as published (Yang et al., 2018): supporting facts and ten paragraphs, or `question, answer, type` alone.

No decomposition is annotated, so there is no plan: a question teaches its route, and its paragraphs their relevance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion, Evidence
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated

LICENCE = "CC-BY-SA-4.0"


def read_hotpot(path: Path | str, source: str = "hotpotqa", licence: str = LICENCE) -> Iterator[Outcome]:
    """Complex questions without a plan; where there is context, each paragraph with its relevance."""
    return read_annotated(path, lambda row: _annotate(row, source, licence))


def _annotate(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    asked = fields.question(row)
    supporting = {title for title, _ in fields.pairs(fields.nested(row, "supporting_facts", []))}
    return AnnotatedQuestion(
        id=fields.identity(row, source, asked, "_id", "id"),
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="complex",
        answers=fields.texts(row, "answer"),
        passages=tuple(
            Evidence(title, " ".join(" ".join(sentences).split()), title in supporting)
            for title, sentences in fields.pairs(fields.nested(row, "context", []))
        ),
    )
