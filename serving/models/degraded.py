"""What stands in for a plan that could not be written: the question itself."""

from __future__ import annotations

from revelator.plans import Atomic, art, logic, render
from revelator.plans.expression import without_placeholders
from revelator.tasks import TASKS


def question_itself(task: str, prompt: str) -> str:
    """The question of `prompt` as a plan of one leaf, as one term or as one search; braces of placeholders go."""
    question = TASKS[task].question(prompt)
    match task:
        case "translate_logic":
            return logic.render(logic.Term(question))
        case "translate_art":
            return art.render(art.Art(art.escape(question), art.Search(art.escape(question))))
    return render(Atomic(without_placeholders(question)))
