"""The strategy `atomic`: a tree of operators over knowledge sources (AtomR, section 3.3), run as any plan is."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.limits import Limits
from revelator.plans.art import Art
from revelator.plans.language import ART
from revelator.trace import Passage, Trace
from serving.executor import routes
from serving.executor.evidence import Models
from serving.executor.judges import Unjudged
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.knowledge.sources import Sources
from serving.protocols import PUBLIC, Completion, Generator, Scope


async def answer_by_tree(run: QuestionRun) -> None:
    """Answers by a tree, the caller's or the model's own; where the model writes none, by a plan."""
    await routes.answer_by_plan(run, ART)


async def run_tree(run: QuestionRun, art: Art) -> None:
    """Runs a tree over `run.sources`. Raises PlanError before it starts, and what `run_plan` raises."""
    routes.require_runnable(ART, art, run.limits)
    run.given_plan = art
    await answer_by_tree(run)


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

    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        raise NotImplementedError(query)
