"""Plans for many questions at once, as one looks at them: routes with their probabilities, plans with a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from revelator.errors import InvalidRequest
from revelator.plans.language import PlanLanguage
from revelator.tasks import TASKS, RouteInput, TranslateInput
from serving.models.local import complete
from serving.protocols import Decoding

if TYPE_CHECKING:
    from serving.models.engine import Engine

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


def plan_questions(
    engine: Engine, questions: Sequence[str], language: PlanLanguage, decoding: Decoding
) -> Iterator[PlannedQuestion]:
    """Plans each question whatever its route, in order. One that the model cannot read is refused alone."""
    for first in range(0, len(questions), BATCH):
        batch = questions[first : first + BATCH]
        asked = [question for question in batch if question.strip()]
        try:
            planned: Iterator[PlannedQuestion] = iter(_plan_batch(engine, asked, language, decoding))
        except InvalidRequest:  # one of them is too long
            planned = (_plan_alone(engine, question, language, decoding) for question in asked)
        for question in batch:
            yield next(planned) if question.strip() else PlannedQuestion(question, error="the question is empty")


def _plan_alone(engine: Engine, question: str, language: PlanLanguage, decoding: Decoding) -> PlannedQuestion:
    try:
        return _plan_batch(engine, [question], language, decoding)[0]
    except InvalidRequest as error:
        return PlannedQuestion(question, error=f"{error.message}; {error.hint}")


def _plan_batch(
    engine: Engine, questions: Sequence[str], language: PlanLanguage, decoding: Decoding
) -> list[PlannedQuestion]:
    route = TASKS["route"]
    translate = next(task for task in TASKS.values() if task.language is language)
    routes = complete(engine, route.name, [route.render(RouteInput(question)) for question in questions])
    prompts = [translate.render(TranslateInput(question)) for question in questions]
    plans = complete(engine, translate.name, prompts, decoding=decoding)
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
