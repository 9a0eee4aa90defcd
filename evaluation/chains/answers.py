"""Questions put to a running server, and what came back, scored by the rule of their set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from data_gen.annotated import AnnotatedQuestion
from evaluation.measures.metrics import AnswerScore, answer_score, list_score
from evaluation.rows import append_rows, progress_bar, read_rows
from revelator.client import AsyncClient
from revelator.errors import RevelatorError, Unavailable
from revelator.trace import Trace

RULES = {"musique": "musique", "2wiki": "hotpotqa"}  # 2WikiMultiHopQA scores by HotpotQA's rule
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


def score(question: AnnotatedQuestion, answer: str, answers: Sequence[str]) -> AnswerScore:
    """By the rule of the question's set. In a world several gold values are all wanted; elsewhere they are aliases."""
    if question.source == "world" and len(question.answers) > 1:
        return list_score(answers, question.answers)
    return answer_score(answer, question.answers, RULES.get(question.source, "squad"))


def answer_row(question: AnnotatedQuestion, trace: Trace) -> AnswerRow:
    text = "; ".join(trace.answers)  # the values, without the sentence around them
    return AnswerRow(
        id=question.id,
        source=question.source,
        question=question.question,
        gold=question.answers,
        answer=text,
        **asdict(score(question, text, trace.answers)),
        route=trace.route or "",
        plan=trace.plan or "",
        plan_source=trace.plan_source,
        degraded=trace.degraded,
        outcome=trace.outcome,
        asked=tuple(node.asked for node in trace.nodes if node.kind == "atomic" and node.asked),
        **asdict(trace.usage),
        wall_ms=trace.wall_ms,
        critical_path_ms=trace.critical_path_ms,
    )


async def _ask_all(questions: Sequence[AnnotatedQuestion], url: str, out: Path, seconds: float) -> None:
    gate = asyncio.Semaphore(AT_ONCE)
    with progress_bar() as progress:
        bar = progress.add_task("questions", total=len(questions))
        async with AsyncClient(url, timeout=seconds) as client:

            async def ask(question: AnnotatedQuestion) -> None:
                async with gate:
                    try:
                        row = answer_row(question, (await client.ask(question.question)).trace)
                    except Unavailable:  # not this question's fault: the measurement stops, and goes on when run again
                        raise
                    except RevelatorError as error:
                        about = (question.id, question.source, question.question, question.answers)
                        row = AnswerRow(*about, error=f"{type(error).__name__}: {error.message}")
                append_rows(out, [row])
                progress.advance(bar)

            async with asyncio.TaskGroup() as group:
                for question in questions:
                    group.create_task(ask(question))


def ask_all(questions: Sequence[AnnotatedQuestion], url: str, out: Path, seconds: float = 60.0) -> None:
    """Adds to the rows of `out` those of the questions that are not in it yet."""
    done = {row.id for row in read_rows(out, AnswerRow)}
    asyncio.run(_ask_all([q for q in questions if q.id not in done], url, out, seconds))
