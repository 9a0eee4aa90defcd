"""The baselines by name, and what each of them needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from evaluation.baselines.adaptive import adaptive
from evaluation.baselines.direct import direct
from evaluation.baselines.hanrag import hanrag
from evaluation.baselines.ircot import ircot
from evaluation.baselines.iter_retgen import iter_retgen
from evaluation.baselines.naive import naive_5, naive_10
from evaluation.baselines.probtree import probtree
from evaluation.baselines.qcompiler import qcompiler
from evaluation.baselines.self_ask import self_ask
from revelator.errors import DeadlineExceeded
from revelator.limits import Limits
from revelator.trace import Trace
from serving.executor.evidence import Models
from serving.executor.recording import Recorder
from serving.executor.run import Run


@dataclass(frozen=True)
class Baseline:
    """`answer` ends in `Run.answer`. `writes`: it prompts a language model for more than answers; `revelator`: it asks
    our model; `compiles`: its plans can be held against gold; `searches`: it needs an index; `kept`: documents that a
    leaf reads where the configuration does not say."""

    answer: Callable[[Run], Awaitable[None]]
    writes: bool = False
    revelator: bool = False
    compiles: bool = False
    searches: bool = True
    kept: int | None = None


BASELINES = {
    "direct": Baseline(direct, searches=False),
    "naive-5": Baseline(naive_5),
    "naive-10": Baseline(naive_10),
    "self-ask": Baseline(self_ask, writes=True),
    "ircot": Baseline(ircot, writes=True),
    "iter-retgen": Baseline(iter_retgen),
    "adaptive-rag": Baseline(adaptive, writes=True, revelator=True),
    "probtree": Baseline(probtree, writes=True),
    "hanrag": Baseline(hanrag, revelator=True),
    "qcompiler": Baseline(qcompiler, revelator=True, compiles=True, kept=1),
}


async def run_baseline(name: str, question: str, models: Models, limits: Limits) -> Trace:
    """The trace of one question, under the limits that the executor has. Raises as the executor does."""
    limits.check_question(question)
    run = Run(question, models, limits, Recorder(question, name))
    try:
        async with asyncio.timeout(limits.deadline_ms / 1000):
            await BASELINES[name].answer(run)
    except TimeoutError as error:
        raise DeadlineExceeded(f"no answer within {limits.deadline_ms:g} ms") from error
    return run.recorder.finish()
