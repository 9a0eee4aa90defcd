"""The strategy `atomic`: a caller's tree, or the revelator's own, or one derived from the plan that it compiles."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from revelator.errors import PlanError
from revelator.plans import Expression
from revelator.plans.art import Art, escape, parse
from serving.executor import routes
from serving.executor.run import Run
from serving.executor.threads import apart
from serving.knowledge.config import open_sources
from serving.knowledge.planning import tree_of
from serving.knowledge.run import require_valid, run_art
from serving.knowledge.sources import Sources
from serving.knowledge.text import TextSource
from serving.protocols import Retriever


class AtomicStrategy:
    """Answers questions by trees of atomic operators over fixed sources."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    @classmethod
    def open(cls, path: Path | None, retriever: Retriever) -> AtomicStrategy:
        """Over the sources that a file names (`serving.knowledge.config`), or over the retriever alone."""
        return cls(open_sources(path, retriever) if path else Sources([TextSource(retriever)]))

    async def __call__(self, run: Run, plan: str | None) -> None:
        """Writes the nodes and ends in `run.answer`. `plan`: the caller's tree as JSON; None: the model's own.

        Raises ExpressionError and PlanError, before any source is asked, for a tree that cannot be run.
        """
        if plan is not None:
            art = await apart(len(plan), partial(parse, plan))
            await run_art(run, art, self.sources, "given")
        else:
            await run_art(run, await _written(run), self.sources, "model")

    async def close(self) -> None:
        await self.sources.close()


async def _written(run: Run) -> Art:
    """The model's first tree that can be run, about the question as it was asked; else the tree of its first plan.

    Raises PlanError where it writes neither.
    """
    tree: Art | None = await routes.translate(run, "translate_art", lambda art: require_valid(art, run.limits))
    if tree is not None:
        return replace(tree, question=escape(run.question))
    wrong = routes.said(run)
    plan: Expression | None = await routes.translate(
        run, "translate_bnf", lambda plan: routes.require_valid(plan, run.limits)
    )
    if plan is None:
        raise PlanError(f"neither a tree ({wrong}) nor a plan ({routes.said(run)}) that the model wrote could be run")
    run.degrade(f"no tree that the model wrote could be run ({wrong}): it was derived from the model's plan")
    return tree_of(run.question, plan)
