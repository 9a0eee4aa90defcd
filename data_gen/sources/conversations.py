"""Conversations: QReCC (Anantha et al., NAACL 2021), whose questions people wrote anew so that each stands alone.

A row teaches the task rewrite alone. QReCC has QuAC's, TREC CAsT's and Natural Questions' conversations; copies of it
name the fields in three ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen.questions import AnnotatedQuestion, AnnotatedStep, DroppedError, quote_value
from data_gen.sources import fields
from data_gen.sources.rows import ReadResult, read_annotated
from revelator import plans
from revelator.errors import DataError

NUMBERS = ("conversation_id", "Conversation_no"), ("turn_id", "Turn_no")
TURNS = 3  # that the executor shows the model (serving.executor.conversation)


def read_qrecc(path: Path | str) -> Iterator[ReadResult]:
    """Each message with the turns before it, and the question that it means."""
    return read_annotated(path, _annotate)


def _annotate(row: dict[str, Any]) -> AnnotatedQuestion:
    said = fields.read_nested(row, "context" if "context" in row else "Context")
    if not isinstance(said, list) or len(said) % 2 or not all(isinstance(text, str) for text in said):
        raise DataError(f"field 'Context' must list questions and answers in turn, found {quote_value(said)}")
    if not said:
        raise DroppedError("the first message of a conversation")
    said = [" ".join(text.encode(errors="replace").decode().split()) for text in said]
    turns = zip(said[::2], said[1::2], strict=True)
    meant = fields.read_question(row, "Rewrite", "Truth_rewrite", "question_rewrite")
    turn = [row[names[0] if names[0] in row else names[1]] for names in NUMBERS]
    if not all(isinstance(number, int | str) for number in turn):
        raise DataError(f"conversation and turn must be numbers, found {quote_value(turn)}")
    return AnnotatedQuestion(
        id=f"qrecc:{turn[0]}-{turn[1]}",
        source="qrecc",
        licence="CC-BY-SA-3.0",
        split="",
        question=meant,
        route="single",
        expression=plans.render(plans.Atomic(meant)),
        tasks=("rewrite",),
        message=fields.read_question(row, "Question", "question"),
        history=tuple(AnnotatedStep(asked, (answer,) if answer else ()) for asked, answer in turns)[-TURNS:],
    )
