"""QCompiler as published (Zhang et al. 2025, section 3.3): the compiled plan is processed by recursive descent, one
leaf after the other, each reads one document (`Limits.kept`; figure 3 varies it), and the generator answers from all
sub-questions and their answers.

Of the samples at rising temperatures the first that the paper's own rules accept is taken (appendix D). Not here: our
relevance judgement, parallel leaves, fan-out, operations by code.
"""

from __future__ import annotations

from evaluation.baselines.steps import merge, read, step
from revelator.errors import PlanError
from revelator.plans import Atomic, Expression, bind, check, leaves, render, substitute
from revelator.plans.bnf import without_placeholders
from revelator.tasks import TRANSLATE_BNF
from serving.executor import routes
from serving.executor.run import Run


async def qcompiler(run: Run) -> None:
    def require(plan: Expression) -> None:
        run.limits.check_plan(plan)
        if faults := check(plan, rules="paper") or check(plan):
            raise PlanError(faults[0].message, diagnostics=faults)

    plan = await routes.translate(run, TRANSLATE_BNF, require)
    trace = run.recorder.trace
    trace.plan_source = "model" if plan else "fallback"
    plan = plan or Atomic(without_placeholders(run.question))
    trace.plan = render(plan)
    answers: list[str] = []
    for leaf, sources in zip(leaves(plan), bind(plan).sources, strict=True):
        asked = substitute(leaf.text, {name: answers[producer] for name, producer in sources.items()})
        run.steps.append(step(await read(run, asked, run.limits.kept)))
        answers.append(run.steps[-1].answer)
    node = await merge(run, run.question, [s for s in run.steps if s.answers]) if len(run.steps) > 1 else None
    run.answer(*((node.answers, node.sentence) if node and node.answers else (run.steps[-1].answers, "")))
