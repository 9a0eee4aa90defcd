"""Plans for many questions at once, as one looks at them: routes with their probabilities, plans with a verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from revelator.errors import InvalidRequest
from revelator.plans.language import PlanLanguage
from revelator.tasks import TASKS, RouteInput, TranslateInput
from serving.protocols import Revelator

BATCH = 32  # questions that the model is given at once


@dataclass(frozen=True)
class PlannedQuestion:
    """`route` is the likeliest; `plan` is what the model wrote, in canonical text where it parses; `letters` is its
    shape, None where it has none; `degraded`: the question itself stands for a plan that could not be closed.
    `error` says why a question was not planned."""

    question: str
    route: str = ""
    probabilities: dict[str, float] = field(default_factory=dict)
    plan: str = ""
    letters: str | None = None
    valid: bool = False
    degraded: bool = False
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


async def plan_questions(
    revelator: Revelator, questions: Sequence[str], language: PlanLanguage
) -> AsyncIterator[PlannedQuestion]:
    """Plans each question whatever its route, in order. One that the model cannot read is refused alone."""
    for first in range(0, len(questions), BATCH):
        batch = questions[first : first + BATCH]
        asked = [question for question in batch if question.strip()]
        try:
            planned = await _plan_batch(revelator, asked, language)
        except InvalidRequest:  # one of them is too long
            planned = [await _plan_alone(revelator, question, language) for question in asked]
        done = iter(planned)
        for question in batch:
            yield next(done) if question.strip() else PlannedQuestion(question, error="the question is empty")


async def _plan_alone(revelator: Revelator, question: str, language: PlanLanguage) -> PlannedQuestion:
    try:
        return (await _plan_batch(revelator, [question], language))[0]
    except InvalidRequest as error:
        return PlannedQuestion(question, error=f"{error.message}; {error.hint}")


async def _plan_batch(revelator: Revelator, questions: Sequence[str], language: PlanLanguage) -> list[PlannedQuestion]:
    route = TASKS["route"]
    translate = next(task for task in TASKS.values() if task.language is language)
    routes = await revelator.complete(route.name, [route.render(RouteInput(question)) for question in questions])
    prompts = [translate.render(TranslateInput(question)) for question in questions]
    plans = await revelator.complete(translate.name, prompts)
    planned = []
    for question, routed, plan in zip(questions, routes, plans, strict=True):
        verdict = language.verdict(plan.text)
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
