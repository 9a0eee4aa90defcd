"""The four routes (HANRAG, section 4), with a compiled plan in place of the complex loop (QCompiler, section 3); and
strategies that name one way: a logical query, the loop, the generator alone.

Each route writes its nodes into the trace and ends in `QuestionRun.answer`. The loop is what remains when no plan of
the model's own can be run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

from revelator.errors import ExpressionError, PlanError, TaskOutputError, Unavailable
from revelator.limits import Limits
from revelator.plans import Atomic, Diagnostic, Expression, Operation, list_leaves
from revelator.plans import Sequence as ListOf
from revelator.plans.bnf import name_route
from revelator.plans.language import ART, BNF, LANGUAGES, LOGIC, PlanLanguage
from revelator.tasks import TASKS, QuestionInput, Step, StepsInput
from revelator.trace import Node, PlanSource
from serving.executor.labels import find_labels
from serving.executor.merging import judge_answers, merge_steps
from serving.executor.run import QuestionRun
from serving.executor.scheduler import PlanRun, leave_unnamed
from serving.protocols import GenerateRequest

log = logging.getLogger(__name__)

TEMPERATURES = (0.0, 0.5, 0.8, 1.0)  # the first valid plan is taken (QCompiler, section 3.3)


async def choose_route(run: QuestionRun) -> str:
    """Asks the model for the route."""
    node = run.open("route")
    with run.recorder.record(node):
        [label] = await run.models.complete(node, "route", [QuestionInput(run.question)])
        route = TASKS["route"].parse(label)
        node.answers = [route]
    run.recorder.trace.route = route
    return route


async def answer_direct(run: QuestionRun) -> None:
    node = run.open("direct")
    with run.recorder.record(node):
        await run.models.generate(node, GenerateRequest("direct", run.question))
    run.answer(node.answers)


async def answer_straightforward(run: QuestionRun) -> None:
    """Asks the documents, as for a single question. Where a language model may answer from what it knows, it is asked
    first, and the documents answer what it cannot."""
    if run.writing.own_knowledge:
        await answer_direct(run)
        if run.recorder.trace.answers:
            return
        run.degrade("the generator had no answer without documents")
    await answer_single(run)


async def answer_single(run: QuestionRun, query: str | None = None) -> None:
    """Answers the question as one step, whose documents it finds, or a logical query (ITLR)."""
    node = await _answer_step(run, run.question, query)
    run.answer(node.answers)


async def answer_compound(run: QuestionRun, operation: str = "") -> None:
    """Asks each part; the answer is that of each, or what an operation makes of them."""
    node = run.open("decompose")
    with run.recorder.record(node):
        [output] = await run.models.complete(node, "decompose", [QuestionInput(run.question)])
        try:
            expression = _join_parts(TASKS["decompose"].parse(output), operation)
            require_runnable(BNF, expression, run.limits)
            node.answers = [leaf.text for leaf in list_leaves(expression)]
        except (TaskOutputError, PlanError) as error:
            node.end_without_answer("fault", str(error))
            node.detail["output"] = output
            expression = BNF.fallback(run.question)
            run.degrade("the question could not be split into parts: it was asked as one")
    await run_plan(run, expression, "fallback" if run.recorder.trace.degraded else "model")


async def answer_by_plan(run: QuestionRun, language: PlanLanguage = BNF) -> None:
    """Answers by a plan, the caller's or the model's own; where the model writes none, by what stands in for it
    (`INSTEAD`), and where it is unsure of the one that it writes, as a single question. A question whose way was chosen
    here is asked as one step where the steps of its plan find no answer: of other people's questions that brings more
    right answers, and no more wrong ones where there is none (docs/results.md)."""
    trace = run.recorder.trace
    trace.plan_language = language.name
    if run.given_plan is not None:
        await run_plan(run, run.given_plan, "given")
        return
    # The floor was chosen for the embedded base. Of a planner at an endpoint, whose plan is its route, all are run.
    floor = run.limits.plan_floor if trace.strategy == "auto" and trace.route else 0.0
    plan = await translate(run, language, floor)
    if plan is not None:
        if trace.strategy == "auto" and trace.route is None:
            run.route = trace.route = name_route(plan)
        await run_plan(run, plan, "model")
        if trace.strategy == "auto" and not trace.answers:
            await _ask_as_one(run)
    elif run.route == "single":
        await answer_single(run)
    else:
        kind, said, answer = INSTEAD[language.name]
        run.degrade(f"no {kind} that the model wrote could be run ({_find_last_fault(run)}): {said}")
        await answer(run)


async def _ask_as_one(run: QuestionRun) -> None:
    """Asks the question as one step where a plan of several ended without an answer because one of them has none. What
    its steps found is then no evidence. That nothing can be asked any more leaves the plan's end as it is."""
    steps = [node for node in run.recorder.nodes() if node.kind == "atomic"]
    if len(steps) < 2 or all(step.status != "unanswered" for step in steps):
        return
    run.degrade("the steps of the plan found no answer: the question was asked as one")
    with suppress(Unavailable):
        await answer_single(run)
    if run.recorder.trace.answers:
        for step in steps:
            step.detail["abandoned"] = True


async def answer_by_loop(run: QuestionRun) -> None:
    """Repeats refine, one step, end, until the model says that enough is known or `limits.steps` is reached. A step
    that nothing supports ends it: what would come next would be asked with a guess."""
    asked: set[str] = set()
    while len(run.steps) < run.limits.steps:
        question = await _ask_model(run, "refine")
        if question is None or question in asked:
            break
        asked.add(question)
        node = await _answer_step(run, question)
        run.steps.append(Step(question, tuple(node.answers)))
        if node.status == "unanswered":
            break
        if await _ask_model(run, "end") == "yes":
            break
    await merge_steps(run)


async def write_plan(run: QuestionRun, language: PlanLanguage) -> None:
    """Writes the model's plan into the trace as `run_plan` would run it. Raises PlanError where it writes none."""
    trace = run.recorder.trace
    plan = await translate(run, language)
    if plan is None:
        hint = "ask the question as it stands, or write a plan yourself and check it"
        raise PlanError(f"no plan that the model wrote can be run ({_find_last_fault(run)})", hint=hint)
    trace.plan_language = language.name
    _announce_plan(run, plan, "model")


async def run_plan(run: QuestionRun, plan: Any, source: PlanSource) -> None:
    """Runs a plan in the language of the trace and makes its answer."""
    plan = _announce_plan(run, plan, source)
    if run.recorder.trace.plan_language == LOGIC.name:
        await answer_single(run, run.recorder.trace.plan)
        return
    run.plan = PlanRun(
        plan,
        run.ask,
        run.recorder,
        run.limits,
        run.last_nodes,
        judge=partial(judge_answers, run),
        name_parts=partial(find_labels, run.question) if run.names_parts else leave_unnamed,
    )
    await run.plan.run()
    if error := run.plan.find_outage():
        raise error
    run.last_nodes = (run.plan.root.id,)
    run.answer(run.plan.list_answers())


def _announce_plan(run: QuestionRun, plan: Any, source: PlanSource) -> Any:
    """Writes a plan in the language of the trace into it, and returns it; one of the model's is about the question as
    it was asked."""
    trace = run.recorder.trace
    language = LANGUAGES[trace.plan_language]
    if source == "model":
        plan = language.adapt_to_question(plan, run.question)
    trace.plan, trace.plan_source = language.render(plan), source
    run.recorder.report("planned", trace)
    return plan


async def _answer_step(run: QuestionRun, question: str, query: str | None = None) -> Node:
    """Answers one question outside a plan; the question or a logical query finds its documents.

    A service that is down is raised while nothing has been answered yet.
    """
    node = run.open("atomic", question)
    node.asked = question
    try:
        with run.recorder.record(node):
            await run.ask(node, query=query)
    except Exception as error:
        if isinstance(error, Unavailable) and not run.steps:
            raise
        log.warning("node %s failed: %s: %s", node.id, type(error).__name__, error)
    return node


async def translate(
    run: QuestionRun, language: PlanLanguage, floor: float = 0.0, require: Callable[[Any], None] | None = None
) -> Any:
    """Returns the model's first plan that parses and can be run (or passes `require`), or None; each fault becomes a
    diagnostic.

    A plan whose tokens have a probability below `floor` is None as well, and makes the route a single one."""
    task = next(task for task in TASKS.values() if task.language is language)
    require = require or partial(require_runnable, language, limits=run.limits)
    node = run.open("translate")
    attempts: list[dict[str, object]] = []
    node.detail |= {"task": task.name, "attempts": attempts}
    with run.recorder.record(node):
        for temperature in TEMPERATURES:
            asked = [QuestionInput(run.question)]
            [output] = await run.models.complete(node, task.name, asked, temperature=temperature)
            attempts.append({"temperature": temperature, "output": output})
            if node.detail.get("degraded"):
                run.degrade("the model finished no valid plan within its budget: the question is asked as it stands")
            try:
                plan = task.parse(output)
                require(plan)
            except (ExpressionError, PlanError) as error:
                attempts[-1]["error"] = str(error)
                run.recorder.trace.diagnostics += _describe_faults(error, output, temperature)
            else:
                node.answers = [task.write(plan)]
                if (likely := node.detail.get("text_probability", 1.0)) < floor:
                    said = f"a token of the plan has P = {likely:.2f}; the limit plan_floor is {floor:g}"
                    node.detail["unsure"] = f"the plan was not run: {said}"
                    run.route = run.recorder.trace.route = "single"
                    return None
                return plan
        node.end_without_answer("fault", f"none of {len(TEMPERATURES)} plans could be run")
    return None


def _describe_faults(error: ExpressionError | PlanError, output: str, temperature: float) -> list[dict[str, object]]:
    if isinstance(error, ExpressionError):
        faults: Sequence[Diagnostic] = [Diagnostic.of_error(error)]
    else:
        limit = Diagnostic("limit", error.message, 0, len(output), error.hint or "")
        faults = error.diagnostics or [limit]
    return [{"expression": output, "temperature": temperature, **asdict(fault)} for fault in faults]


async def _ask_model(run: QuestionRun, task: Literal["refine", "end"]) -> str | None:
    """What the model makes of the question and the steps so far; None where it cannot be read."""
    node = run.open(task)
    with run.recorder.record(node):
        [output] = await run.models.complete(node, task, [StepsInput(run.question, tuple(run.steps))])
        try:
            node.answers = [TASKS[task].parse(output)]
        except TaskOutputError as error:
            node.end_without_answer("fault", str(error))
            node.detail["output"] = output
            return None
    return node.answers[0]


def _find_last_fault(run: QuestionRun) -> str:
    """The message of the last fault in a plan of the model."""
    return str(run.recorder.trace.diagnostics[-1]["message"])


def _join_parts(questions: Sequence[str], operation: str) -> Expression:
    parts = tuple(Atomic(question) for question in questions)
    joined = parts[0] if len(parts) == 1 else ListOf(parts)
    return Operation(joined, operation) if operation else joined


def require_runnable(language: PlanLanguage, plan: Any, limits: Limits) -> None:
    """Raises PlanError for a plan that cannot be run, or that is larger than the limits; the bounds of a logical query
    hold whatever the limits are."""
    if language is BNF:
        limits.check_plan(plan)
    elif language is ART:
        limits.check_tree(plan)
    refuse(language.check(plan), "tree" if language is ART else "plan")


def refuse(diagnostics: Sequence[Diagnostic], kind: str = "plan") -> None:
    """Raises PlanError for a plan with faults."""
    if diagnostics:
        first = diagnostics[0]
        raise PlanError(f"the {kind} cannot be run: {first.message}", diagnostics=tuple(diagnostics), hint=first.hint)


INSTEAD: dict[str, tuple[str, str, Callable[[QuestionRun], Awaitable[None]]]] = {  # of a plan that no model wrote
    BNF.name: ("plan", "the question went through the loop", answer_by_loop),
    LOGIC.name: ("query", "the question's words found the documents", answer_single),
    ART.name: ("tree", "it wrote a plan instead", answer_by_plan),
}
