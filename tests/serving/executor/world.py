"""A toy world for the executor: every question it knows, in process, with gates instead of clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from revelator.limits import Limits
from revelator.trace import Event, Passage
from serving.executor.executor import Executor, relay_events
from serving.knowledge.sources import Sources
from serving.protocols import Completion, GenerateRequest, Reading


def stream(executor: Executor, question: str, **options: Any) -> AsyncGenerator[Event, None]:
    """The events of one question as they happen; closing the iterator cancels the question."""
    return relay_events(lambda listener: executor.run(question, listener=listener, **options))


@dataclass
class Toy:
    """Retriever, generator and revelator of one small world.

    `knowledge`: question → answers, or a whole reading; an exception stands for a service that fails on it. A question
    in `gates` is answered once its event is set. `outputs`: (task, text in the prompt) → what the revelator answers;
    several outputs are given one after the other. `live` counts calls in flight, `asked` every question in order of
    arrival.
    """

    knowledge: Mapping[str, Sequence[str] | Reading | Exception] = field(default_factory=dict)
    outputs: Mapping[str, str | list[str]] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    relevance: Mapping[str, float] = field(default_factory=dict)
    routes: Mapping[str, float] = field(default_factory=dict)
    written: Mapping[str, float] = field(default_factory=dict)  # the probability of what is written
    asked: list[str] = field(default_factory=list)
    requests: list[GenerateRequest] = field(default_factory=list)
    calls: list[tuple[str, int, float]] = field(default_factory=list)
    started: dict[str, asyncio.Event] = field(default_factory=dict)
    live: int = 0

    def executor(self, routes_by_plan: bool = False, **limits: float) -> Executor:
        return Executor(self, Sources.of_index(self), self, Limits(**limits), routes_by_plan=routes_by_plan)  # type: ignore[arg-type]

    def gate(self, *questions: str) -> None:
        self.gates |= {question: asyncio.Event() for question in questions}

    def release(self, question: str) -> None:
        self.gates[question].set()

    async def running(self, *questions: str) -> None:
        """Waits until each has been put to the retriever, or as "mode: question" to the generator."""
        for question in questions:
            await asyncio.wait_for(self.started.setdefault(question, asyncio.Event()).wait(), 10)

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        self.asked.append(query)
        self.started.setdefault(query, asyncio.Event()).set()
        self.live += 1
        try:
            if query in self.gates:
                await self.gates[query].wait()
            await asyncio.sleep(0)
        finally:
            self.live -= 1
        told = f"about {query}: {self._list_known(query)}"
        return [Passage(f"{query}#{n}", f"title {n}", f"text {n} {told}", 1 / n) for n in range(1, k + 1)]

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        self.calls.append((task, len(prompts), temperature))
        if task == "relevance":
            return [self._relevance(prompt) for prompt in prompts]
        labels = self.routes if task == "route" else self.written
        return [Completion(self._output(task), labels, len(prompt), 1) for prompt in prompts]

    async def answer(self, request: GenerateRequest) -> Reading:
        self.requests.append(request)
        self.started.setdefault(f"{request.mode}: {request.question}", asyncio.Event()).set()
        known = self.knowledge.get(f"{request.mode}: {request.question}")
        if known is None:
            known = self.knowledge.get(request.question, ()) if request.mode != "rewrite" else ()
        if isinstance(known, Exception):
            raise known
        if isinstance(known, Reading):
            return known
        return Reading(f"It is {', '.join(known)}." if known else "", tuple(known), 7, 3, "toy")

    def _list_known(self, query: str) -> str:
        """What the passages say: the answers to this question, of a query that is no question those to all."""
        found = [self.knowledge[query]] if query in self.knowledge else self.knowledge.values()
        return ", ".join(answer for known in found if isinstance(known, list | tuple) for answer in known)

    def _relevance(self, prompt: str) -> Completion:
        yes = next((p for text, p in self.relevance.items() if text in prompt), 0.9)
        return Completion("yes" if yes >= 0.5 else "no", {"yes": yes, "no": 1 - yes}, len(prompt), 0)

    def _output(self, task: str) -> str:
        output = self.outputs[task]
        return output if isinstance(output, str) else output.pop(0)
