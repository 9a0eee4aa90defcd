"""Upper bounds: what a system would answer if one part of it were perfect. With the gold plan only retrieval and
reading can fail; with the gold passages of the whole question only the reader can."""

from __future__ import annotations

from typing import Literal

from data_gen.questions import AnnotatedQuestion
from revelator.errors import InvalidRequest
from revelator.limits import Limits
from revelator.trace import Passage, Trace
from serving.executor.evidence import Models
from serving.executor.executor import Executor
from serving.executor.recording import Recorder
from serving.executor.run import Run
from serving.protocols import GenerateRequest

Bound = Literal["gold-plan", "gold-passages"]


async def answer_by_gold_plan(executor: Executor, gold: AnnotatedQuestion) -> Trace:
    """Raises InvalidRequest for a question whose gold plan is not known."""
    if not gold.expression:
        raise InvalidRequest("this question has no gold plan")
    return await executor.run(gold.question, plan=gold.expression)


async def answer_from_gold_passages(models: Models, limits: Limits, gold: AnnotatedQuestion) -> Trace:
    """Raises InvalidRequest for a question whose gold passages are not known."""
    passages = tuple(Passage(p.id, p.title, p.text, 1.0) for p in gold.passages if p.relevant)
    if not passages:
        raise InvalidRequest("this question has no gold passages")
    run = Run(gold.question, models, limits, Recorder(gold.question, "single"))
    node = run.open("atomic")
    node.asked, node.documents = gold.question, list(passages)
    with run.recorder.record(node):
        await models.generate(node, GenerateRequest("read", gold.question, passages=passages))
    run.answer(node.answers)
    return run.recorder.finish()
