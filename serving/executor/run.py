"""One question on its way through the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from revelator.tasks import Step
from revelator.trace import Kind, Node
from serving.executor.anrag import Models, anrag
from serving.executor.leaf import take
from serving.executor.limits import Limits
from serving.executor.plan import PlanRun
from serving.executor.recording import Recorder


class AtomicRunner(Protocol):
    """Answers by a tree of atomic operators over knowledge sources (AtomR): what `serving.knowledge` brings."""

    async def __call__(self, run: Run, plan: str | None) -> None:
        """Writes the nodes, ends in `run.answer`. `plan`: the caller's tree as JSON; None for one of the model's own.

        Raises PlanError or TaskOutputError for a tree that cannot be run, before any source is asked.
        """


@dataclass
class Run:
    """What it may use, what it has written, and how far it has come."""

    question: str
    models: Models
    limits: Limits
    recorder: Recorder
    kind: str = "complex"  # the route that was taken; a given plan goes as a complex question does
    last: tuple[str, ...] = ()  # ids of the nodes that the next box comes after
    plan: PlanRun | None = None
    steps: list[Step] = field(default_factory=list)
    atomic: AtomicRunner | None = None
    given: str | None = None  # the caller's own plan
    earlier: Mapping[str, Node] = field(default_factory=dict)  # leaves of an earlier trace, by what was asked
    share: bool = True  # whether leaves that ask the same are asked once

    def open(self, kind: Kind, question: str | None = None) -> Node:
        """A box that comes after the one before it."""
        node = self.recorder.open(kind, question or self.question, after=self.last)
        self.last = (node.id,)
        return node

    async def ask(self, node: Node, query: str | None = None) -> None:
        """Fills a leaf: as it ended in the earlier trace, if that is given and asked the same, or by one step.

        What a logical `query` found is never taken from an earlier trace.
        """
        earlier = None if query else self.earlier.get(node.asked or "")
        if earlier:
            take(node, earlier, "reused_from")
        else:
            await anrag(self.models, node, self.limits, self.recorder.tell, query)

    def answer(self, answers: Sequence[str], sentence: str = "") -> None:
        self.recorder.trace.answers = list(answers)
        self.recorder.trace.answer = sentence or ", ".join(answers)

    def degrade(self, reason: str) -> None:
        self.recorder.trace.degraded = True
        self.recorder.trace.reason = reason
