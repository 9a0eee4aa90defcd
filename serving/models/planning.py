"""Plans for many questions at once, as one looks at them: routes with their probabilities, plans with a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from revelator.errors import ExpressionError, InvalidRequest
from revelator.plans.language import PlanLanguage
from revelator.tasks import TASKS, QuestionInput
from serving.protocols import Completion

BATCH = 32  # questions that the model is given at once
Complete = Callable[[str, Sequence[str]], list[Completion]]  # of a task, one completion a prompt, in order


@dataclass(frozen=True)
class PlannedQuestion:
    """`route` is the likeliest; `plan` is what the model wrote, as the executor runs it, in canonical text where
    it parses; `letters` is its shape, None where it has none; `degraded`: the
    question itself stands for a plan that the model did not finish. `error` says why a question was not planned."""

    question: str
    route: str = ""
    probabilities: dict[str, float] = field(default_factory=dict)
    plan: str = ""
    letters: str | None = None
    valid: bool = False
    degraded: bool = False
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


def plan_questions(complete: Complete, questions: Sequence[str], language: PlanLanguage) -> Iterator[PlannedQuestion]:
    """Plans each question whatever its route, in order. One that the model cannot read is refused alone."""
    for first in range(0, len(questions), BATCH):
        batch = questions[first : first + BATCH]
        asked = [question for question in batch if question.strip()]
        try:
            planned: Iterator[PlannedQuestion] = iter(_plan_batch(complete, asked, language))
        except InvalidRequest:  # one of them is too long
            planned = (_plan_alone(complete, question, language) for question in asked)
        for question in batch:
            yield next(planned) if question.strip() else PlannedQuestion(question, error="the question is empty")


def _plan_alone(complete: Complete, question: str, language: PlanLanguage) -> PlannedQuestion:
    try:
        return _plan_batch(complete, [question], language)[0]
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


def _plan_batch(complete: Complete, questions: Sequence[str], language: PlanLanguage) -> list[PlannedQuestion]:
    route = TASKS["route"]
    translate = next(task for task in TASKS.values() if task.language is language)
    routes = complete(route.name, [route.render(QuestionInput(question)) for question in questions])
    prompts = [translate.render(QuestionInput(question)) for question in questions]
    plans = complete(translate.name, prompts)
    planned = []
    for question, routed, plan in zip(questions, routes, plans, strict=True):
        verdict = language.diagnose(_settle(plan.text, question, language))
        planned.append(
            PlannedQuestion(
                question,
                routed.text,
                {label: round(share, 4) for label, share in routed.probabilities.items()},
                verdict["canonical"] or plan.text,
                verdict["letters"],
                verdict["valid"],
                plan.degraded,
                verdict["diagnostics"],
            )
        )
    return planned
