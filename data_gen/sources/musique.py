"""MuSiQue as published (Trivedi et al., 2022): `question_decomposition` with `#n` references, paragraphs or none.

The single-hop questions come in free words or, where they were made from a knowledge graph, as `X >> relation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion, Evidence
from data_gen.annotation import GoldStep, plan
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from data_gen.trees import tree
from revelator.errors import DataError

LICENCE = "CC-BY-4.0"


def read_musique(path: Path | str, source: str = "musique", licence: str = LICENCE) -> Iterator[Outcome]:
    """Complex questions with plan, steps, answers and, where there are paragraphs, their relevance."""
    return read_annotated(path, lambda row: _annotate(row, source, licence))


def _annotate(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    question = fields.question(row)
    paragraphs = row.get("paragraphs", [])
    titles = {paragraph["idx"]: paragraph["title"] for paragraph in paragraphs}
    decomposition = row["question_decomposition"]
    if not isinstance(decomposition, list) or not decomposition:
        raise DataError("field 'question_decomposition' must be a list of steps")
    steps = [_step(step, titles) for step in decomposition]
    identity = f"{source}:{fields.text(row, 'id')}"
    planned = plan(question, steps, identity)
    return AnnotatedQuestion(
        id=identity,
        source=source,
        licence=licence,
        split="",
        question=question,
        route="complex",
        expression=planned.expression,
        steps=planned.steps,
        answers=tuple(dict.fromkeys([fields.text(row, "answer"), *_aliases(row)])),
        passages=tuple(Evidence(p["title"], p["paragraph_text"], bool(p["is_supporting"])) for p in paragraphs),
        entities=planned.entities,
        tree=tree(question, planned.nodes),
    )


def _step(step: dict[str, Any], titles: dict[int | None, str]) -> GoldStep:
    title = titles.get(step.get("paragraph_support_idx"), "") if titles else _document(step)
    text, answer = fields.text(step, "question"), fields.text(step, "answer")
    if ">>" in text:
        subject, relation = (" ".join(part.split()) for part in text.rsplit(">>", 1))
        return GoldStep(answer, subject=subject, relation=relation, title=title)
    return GoldStep(answer, text=text, title=title)


def _document(step: dict[str, Any]) -> str:
    """The title in a `document_id` such as "UHF (film)_0"."""
    return str(step.get("document_id") or "").rpartition("_")[0]


def _aliases(row: dict[str, Any]) -> list[str]:
    aliases = row.get("answer_aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise DataError(f"field 'answer_aliases' must be a list of texts, found {aliases!r:.60}")
    return aliases
