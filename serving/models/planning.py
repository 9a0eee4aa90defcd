"""Plans for many questions at once, as one looks at them: routes with their probabilities, plans with a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from revelator.errors import ExpressionError, InvalidRequest
from revelator.plans import parse
from revelator.plans.bnf import name_route
from revelator.plans.language import BNF, PlanLanguage
from revelator.tasks import TASKS, QuestionInput
from serving.protocols import TEXT, Completion

BATCH = 32  # questions that the model is given at once
Complete = Callable[[str, Sequence[str]], list[Completion]]  # of a task, one completion a prompt, in order


@dataclass(frozen=True)
class PlannedQuestion:
    """`route` is the likeliest; `plan` is what the model wrote, as the executor runs it, in canonical text where
    it parses, and `probability` that of its tokens (geometric mean), where it is known; `letters` is its shape, None
    where it has none; `degraded`: the question itself stands for a plan that the model did not finish. `error` says why
    a question was not planned."""

    question: str
    route: str = ""
    probabilities: dict[str, float] = field(default_factory=dict)
    plan: str = ""
    probability: float | None = None
    letters: str | None = None
    valid: bool = False
    degraded: bool = False
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


def plan_questions(
    complete: Complete, questions: Sequence[str], language: PlanLanguage, routes_by_plan: bool = False
) -> Iterator[PlannedQuestion]:
    """Plans each question whatever its route, in order. One that the model cannot read is refused alone.
    `routes_by_plan`: the plan says the route, which is not asked for."""
    for first in range(0, len(questions), BATCH):
        batch = questions[first : first + BATCH]
        asked = [question for question in batch if question.strip()]
        try:
            planned: Iterator[PlannedQuestion] = iter(_plan_batch(complete, asked, language, routes_by_plan))
        except InvalidRequest:  # one of them is too long
            planned = (_plan_alone(complete, question, language, routes_by_plan) for question in asked)
        for question in batch:
            yield next(planned) if question.strip() else PlannedQuestion(question, error="the question is empty")


def _plan_alone(complete: Complete, question: str, language: PlanLanguage, routes_by_plan: bool) -> PlannedQuestion:
    try:
        return _plan_batch(complete, [question], language, routes_by_plan)[0]
    except InvalidRequest as error:
        return PlannedQuestion(question, error=f"{error.message}; {error.hint}")


def _settle(text: str, question: str, language: PlanLanguage) -> str:
    """The plan as the executor runs it; a text that does not parse stays as it is."""
    try:
        plan = language.parse(text)
    except ExpressionError:
        return text
    settled = language.adapt_to_question(plan, question)
    return text if settled == plan else language.render(settled)


def _name_route(text: str) -> str:
    """The route of a plan's text; that of several steps where it does not parse."""
    try:
        return name_route(parse(text))
    except ExpressionError:
        return "complex"


def _plan_batch(
    complete: Complete, questions: Sequence[str], language: PlanLanguage, routes_by_plan: bool
) -> list[PlannedQuestion]:
    route = TASKS["route"]
    translate = next(task for task in TASKS.values() if task.language is language)
    prompts = [translate.render(QuestionInput(question)) for question in questions]
    plans = complete(translate.name, prompts)
    if routes_by_plan and language is BNF:
        routes = [Completion(_name_route(plan.text)) for plan in plans]
    else:
        routes = complete(route.name, [route.render(QuestionInput(question)) for question in questions])
    planned = []
    for question, routed, plan in zip(questions, routes, plans, strict=True):
        verdict = language.diagnose(_settle(plan.text, question, language))
        planned.append(
            PlannedQuestion(
                question,
                routed.text,
                {label: round(share, 4) for label, share in routed.probabilities.items()},
                verdict["canonical"] or plan.text,
                round(plan.probabilities[TEXT], 4) if TEXT in plan.probabilities else None,
                verdict["letters"],
                verdict["valid"],
                plan.degraded,
                verdict["diagnostics"],
            )
        )
    return planned
