"""Questions put to a running server, and what came back, scored by the rule of their set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path

from data_gen.questions import AnnotatedQuestion
from evaluation.asking import ask_each, kept, refusal
from evaluation.harness.formats import FORMATS
from evaluation.harness.question_scores import answer_values
from evaluation.measures.metrics import AnswerScore
from evaluation.rows import append_rows, progress_bar, read_rows
from revelator.client import AsyncClient
from revelator.errors import RevelatorError
from revelator.trace import Trace

AT_ONCE = 2  # questions in flight: one a core


@dataclass(frozen=True)
class AnswerRow:
    """One executed question. `asked` are the texts of its leaves after substitution; `error` is set when the server
    refused it, and then it scores nothing."""

    id: str
    source: str
    question: str
    gold: tuple[str, ...]
    answer: str = ""
    em: float = 0.0
    acc: float = 0.0
    f1: float = 0.0
    route: str = ""
    plan: str = ""
    plan_source: str = "none"
    degraded: bool = False
    outcome: str = "failed"
    asked: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    model_calls: int = 0
    generator_calls: int = 0
    retrievals: int = 0
    wall_ms: float = 0.0
    critical_path_ms: float = 0.0
    error: str = ""


def score(question: AnnotatedQuestion, answers: Sequence[str]) -> AnswerScore:
    """By the rule of the question's set. In a world several gold values are all wanted; elsewhere they are aliases."""
    how, text = FORMATS[question.source], "; ".join(answers)  # the values, without the sentence around them
    return AnswerScore(**answer_values(text, answers, question.answers, how.normaliser, is_list=how.lists))


def answer_row(question: AnnotatedQuestion, outcome: Trace | RevelatorError) -> AnswerRow:
    about = AnswerRow(question.id, question.source, question.question, question.answers)
    if isinstance(outcome, RevelatorError):
        return replace(about, error=refusal(outcome))
    return replace(
        about,
        answer="; ".join(outcome.answers),
        **asdict(score(question, outcome.answers)),
        route=outcome.route or "",
        plan=outcome.plan or "",
        plan_source=outcome.plan_source,
        degraded=outcome.degraded,
        outcome=outcome.outcome,
        asked=tuple(node.asked for node in outcome.nodes if node.kind == "atomic" and node.asked),
        **asdict(outcome.usage),
        wall_ms=outcome.wall_ms,
        critical_path_ms=outcome.critical_path_ms,
    )


async def _ask_all(questions: Sequence[AnnotatedQuestion], url: str, out: Path, seconds: float) -> None:
    with progress_bar() as progress:
        bar = progress.add_task("questions", total=len(questions))
        async with AsyncClient(url, timeout=seconds) as client:

            async def ask(question: str) -> Trace:
                return (await client.ask(question)).trace

            def told(question: AnnotatedQuestion, outcome: Trace | RevelatorError) -> None:
                append_rows(out, [answer_row(question, outcome)])
                progress.advance(bar)

            with kept():
                await ask_each(ask, questions, attrgetter("question"), told, AT_ONCE)


def ask_all(questions: Sequence[AnnotatedQuestion], url: str, out: Path, seconds: float = 60.0) -> None:
    """Adds to the rows of `out` those of the questions that are not in it yet."""
    done = {row.id for row in read_rows(out, AnswerRow)}
    asyncio.run(_ask_all([q for q in questions if q.id not in done], url, out, seconds))
