"""The strategy `atomic`: a caller's tree, or one derived from the plan that the revelator compiles."""

from __future__ import annotations

from pathlib import Path

from revelator.art import Art, parse
from revelator.errors import ExpressionError, PlanError
from revelator.language import check
from revelator.tasks import TASKS, TranslateInput
from serving.executor.run import Run
from serving.knowledge.config import open_sources
from serving.knowledge.planning import tree_of
from serving.knowledge.run import run_art
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
        """Writes the nodes and ends in `run.answer`. `plan`: the caller's tree as JSON; None: the model's own plan.

        Raises ExpressionError and PlanError, before any source is asked, for a tree that cannot be run.
        """
        if plan is not None:
            await run_art(run, parse(plan), self.sources, "given")
        else:
            await run_art(run, await _planned(run), self.sources, "model")

    async def close(self) -> None:
        await self.sources.close()


async def _planned(run: Run) -> Art:
    node = run.open("translate")
    with run.recorder.running(node):
        [output] = await run.models.complete(node, "translate_bnf", [TranslateInput(run.question)])
        node.detail["output"] = output
        try:
            expression = TASKS["translate_bnf"].parse(output)
        except ExpressionError as error:
            raise PlanError(f"the model's plan is no expression: {error.message}", hint=error.hint) from error
        if faults := check(expression):
            raise PlanError(f"the model's plan cannot be run: {faults[0].message}", diagnostics=faults)
        node.answers = [output]
    return tree_of(run.question, expression)
