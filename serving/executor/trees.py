"""The strategy `atomic`: a tree of operators over knowledge sources (AtomR, section 3.3), run as any plan is."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.errors import PlanError
from revelator.limits import DIVIDED, Limits
from revelator.plans.art import Art, check, number_nodes
from revelator.plans.language import ART, BNF
from revelator.tasks import TRANSLATE_ART
from revelator.trace import Passage, Trace
from serving.executor import routes
from serving.executor.evidence import Models
from serving.executor.judges import Unjudged
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.knowledge.sources import Sources
from serving.protocols import Completion, Generator


def require_valid_tree(art: Art, limits: Limits) -> None:
    """Raises PlanError for a tree that cannot be executed, or that is larger than the limits of the run."""
    nodes = number_nodes(art)
    leaves = sum(not node.children for node in nodes)
    if leaves > limits.leaves:
        raise PlanError(f"the tree has {leaves} leaves; the limit leaves is {limits.leaves}", hint=DIVIDED)
    if (deepest := max(len(node.path) for node in nodes)) > limits.depth:
        raise PlanError(f"the tree is {deepest} steps deep; the limit depth is {limits.depth}", hint=DIVIDED)
    if faults := check(art):
        message = f"the tree cannot be run: {faults[0].message}"
        raise PlanError(message, diagnostics=faults, hint=faults[0].hint)


async def answer_by_tree(run: QuestionRun) -> None:
    """Answers by a tree, the caller's or the model's own; where the model writes none, by a plan."""
    if run.given_plan is not None:
        await run_tree(run, run.given_plan)
        return
    run.recorder.trace.plan_language = ART.name
    tree: Art | None = await routes.translate(run, TRANSLATE_ART, lambda art: require_valid_tree(art, run.limits))
    if tree is not None:
        await routes.run_plan(run, tree, "model")
        return
    run.recorder.trace.plan_language = BNF.name
    run.degrade(f"no tree that the model wrote could be run ({routes.find_last_fault(run)}): it wrote a plan instead")
    await routes.answer_by_plan(run)


async def run_tree(run: QuestionRun, art: Art) -> None:
    """Runs a tree that was given over `run.sources`. Raises PlanError before it starts, and what `run_plan` raises."""
    require_valid_tree(art, run.limits)
    run.recorder.trace.plan_language = ART.name
    await routes.run_plan(run, art, "given")


async def run_tree_alone(art: Art, sources: Sources, generator: Generator) -> Trace:
    """Runs a tree on its own, without a model that plans, and returns the trace."""
    models = Models(NoModel(), generator, Unjudged())
    run = QuestionRun(art.question, models, sources, Limits(), Recorder(art.question, "atomic"))
    await run_tree(run, art)
    return run.recorder.finish()


class NoModel:
    """Stands for a model or an index that is never called; calling it is a bug."""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        raise NotImplementedError(task)

    async def search(self, query: str, k: int) -> list[Passage]:
        raise NotImplementedError(query)
