"""Sources, and a generator, in process: with gates instead of clocks, and counts of what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from revelator.limits import Limits
from revelator.plans.art import Art, render
from revelator.plans.language import ART
from revelator.trace import Passage, Trace
from serving.executor import routes
from serving.executor.evidence import Models
from serving.executor.executor import Executor
from serving.executor.judges import Unjudged
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.knowledge.operators import Query, SourceKind, SourceResult
from serving.knowledge.sources import Sources
from serving.protocols import GenerateRequest, Generator, NoModel, Reading


@dataclass
class ToySource:
    """Says for every retrieval text what `says` holds for it (passage texts), or fails with it; waits for `gate`."""

    name: str = "text"
    kind: SourceKind = "text"
    says: Mapping[str, Sequence[str]] = field(default_factory=dict)
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    error: Exception | None = None
    gate: asyncio.Event | None = None
    timeout: float = 20.0
    asked: list[str] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    live: int = 0
    arrived: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def asked_times(self, count: int) -> None:
        """Waits until so many more queries have arrived."""
        for _ in range(count):
            await asyncio.wait_for(self.arrived.get(), 10)

    async def find(self, query: Query, k: int) -> SourceResult:
        self.asked += query.texts
        self.at_once.append(len(query.texts))
        self.live += 1
        self.arrived.put_nowait(query.question)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.live -= 1
        typed = tuple(a for text in query.texts for a in self.answers.get(text, ()))
        return SourceResult(tuple(tuple(self._passages(text, k)) for text in query.texts), typed, note="toy")

    def _passages(self, text: str, k: int) -> list[Passage]:
        said = self.says.get(text, self.says.get("*", ()))
        return [Passage(f"{self.name}:{n}", "", passage, 1 / n) for n, passage in enumerate(said[:k], start=1)]

    async def close(self) -> None:
        pass


@dataclass
class ToyGenerator:
    """Answers by "mode: question" or question; an exception stands for a generator that is down."""

    knowledge: Mapping[str, Sequence[str]] = field(default_factory=dict)
    error: Exception | None = None
    requests: list[GenerateRequest] = field(default_factory=list)

    async def answer(self, request: GenerateRequest) -> Reading:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        known = tuple(
            self.knowledge.get(f"{request.mode}: {request.question}", self.knowledge.get(request.question, ()))
        )
        return Reading(f"It is {', '.join(known)}." if known else "", known, 7, 3, "toy")


def new_run(question: str, generator: ToyGenerator, sources: Sources, limits: Limits | None = None) -> QuestionRun:
    models = Models(NoModel(), generator, Unjudged())
    return QuestionRun(question, models, sources, limits or Limits(), Recorder(question, "atomic"))


async def run_tree(run: QuestionRun, art: Art) -> None:
    run.given_plan = art
    await routes.answer_by_plan(run, ART)


async def run_tree_alone(art: Art, sources: Sources, generator: Generator) -> Trace:
    executor = Executor(NoModel(), sources, generator, judge=Unjudged())
    return await executor.run(art.question, plan=render(art), strategy="atomic")
