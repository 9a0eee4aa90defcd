"""One question on its way through the executor, and how the answers of its parts become its own: by code where code is
sure, else by the generator.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from revelator.limits import Limits
from revelator.tasks import Step
from revelator.trace import Kind, Node
from serving.executor.evidence import Models, answer_from_documents, copy_answer
from serving.executor.operations import branches_of, parts_of
from serving.executor.recording import Recorder
from serving.executor.scheduler import PlanRun
from serving.knowledge.sources import Sources
from serving.merge import Member, Merged, Part, compute, needs_judgement, size_of
from serving.pauses import offload
from serving.protocols import GenerateRequest

log = logging.getLogger(__name__)


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
    sources: Sources | None = None  # those of the strategy `atomic`
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
            copy_answer(node, earlier, "reused_from")
        else:
            await answer_from_documents(self.models, node, self.limits, self.recorder.tell, query)

    def answer(self, answers: Sequence[str], sentence: str = "") -> None:
        self.recorder.trace.answers = list(answers)
        self.recorder.trace.answer = sentence or ", ".join(answers)

    def degrade(self, reason: str) -> None:
        self.recorder.trace.degraded = True
        self.recorder.trace.reason = reason


async def merge_plan(run: Run, plan: PlanRun) -> None:
    """A chain answers with its last stage, a list with its parts' answers one after the other, unless the question
    compares, counts or judges them: then by code, and where code is not sure, by the generator. Code is not sure of a
    fan-out that a limit cut or that failed in part."""
    node = run.open("merge")
    with run.recorder.running(node):
        parts = parts_of(plan, branches_of(plan.expression))
        merged = await _by_code(run.question, parts)
        if merged is None and run.kind != "compound" and needs_judgement(run.question):
            merged = await _by_generator(run, node, _steps(plan))
        _write(run, node, merged or _listed(parts))


async def merge_steps(run: Run) -> None:
    """The answer of the loop: an operation over its steps, the generator, or the last step's own answer."""
    node = run.open("merge")
    known = [step for step in run.steps if step.answers]
    parts = [Part((step.question,), (Member({}, step.answers),)) for step in known]
    with run.recorder.running(node):
        merged = await _computed(run.question, parts) if len(parts) > 1 else None
        merged = merged or await _by_generator(run, node, tuple(known))
        _write(run, node, merged or _listed(parts[-1:]))


async def settle(run: Run) -> None:
    """The answer from what there is, without another call: for a question whose time ran out."""
    if run.plan is not None:
        node = run.open("merge")
        with run.recorder.running(node):
            parts = parts_of(run.plan, branches_of(run.plan.expression))
            _write(run, node, await _by_code(run.question, parts) or _listed(parts))


def _steps(plan: PlanRun) -> tuple[Step, ...]:
    ended = [one for leaf in range(len(plan.leaves)) for one in plan.answered(leaf)]
    return tuple(Step(one.node.asked or one.node.question, one.answers) for one in ended)


async def _by_code(question: str, parts: list[Part]) -> Merged | None:
    merged = await _computed(question, parts)
    if merged is None and len(parts) == 1 and (parts[0].whole or not parts[0].answers):
        return Merged(parts[0].answers, "last stage")
    return merged


async def _computed(question: str, parts: list[Part]) -> Merged | None:
    try:
        return await offload(size_of(parts), partial(compute, question, parts))
    except Exception:  # values come from documents: what no operation is ready for is judged or listed
        log.exception("operation of the question")
        return None


def _listed(parts: list[Part]) -> Merged:
    return Merged(tuple(answer for part in parts for answer in part.answers), "all parts")


async def _by_generator(run: Run, node: Node, steps: tuple[Step, ...]) -> Merged | None:
    if not steps:
        return None
    try:
        await run.models.generate(node, GenerateRequest("merge", run.question, steps=steps))
    except Exception as error:
        log.warning("merge failed: %s: %s", type(error).__name__, error)
        node.status, node.error = "failed", f"{type(error).__name__}: {error}"
        return None
    if not node.answers:
        node.status, node.error = "ok", None  # nothing was lost: what the parts answered is listed instead
        return None
    return Merged(tuple(node.answers), "generator")


def _write(run: Run, node: Node, merged: Merged) -> None:
    node.answers = list(merged.answers)
    node.detail["method"] = merged.method
    run.answer(merged.answers, node.sentence)
