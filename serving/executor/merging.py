"""From the answers of the parts to the answer of the question: by code where that is sure, or by the generator."""

from __future__ import annotations

import logging
from functools import partial

from revelator.tasks import Step
from revelator.trace import Node
from serving.executor.branches import branches
from serving.executor.operations import parts_of
from serving.executor.plan import PlanRun
from serving.executor.run import Run
from serving.executor.threads import apart
from serving.merge import Member, Merged, Part, compute, needs_judgement, size_of
from serving.protocols import GenerateRequest

log = logging.getLogger(__name__)


async def merge_plan(run: Run, plan: PlanRun) -> None:
    """A chain answers with its last stage, a list with its parts' answers one after the other, unless the question
    compares, counts or judges them: then by code, and where code is not sure, by the generator. Code is not sure of a
    fan-out that a limit cut or that failed in part."""
    node = run.open("merge")
    with run.recorder.running(node):
        parts = parts_of(plan, branches(plan.expression))
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
            parts = parts_of(run.plan, branches(run.plan.expression))
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
        return await apart(size_of(parts), partial(compute, question, parts))
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
