"""What of a model's own plans is learnt from: those that hold, that its samples agree on, and that find the answer.

The model and the retrieval are not here: `evaluation.self_training` runs them, and hands in what they gave.
"""

from __future__ import annotations

from calendar import month_name
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from data_gen.annotate.validation import check_coverage, check_plan
from data_gen.leakage import normalise
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from revelator.errors import ExpressionError
from revelator.plans import Expression, doubts, leaves, letters_key, parse, render
from revelator.plans import Sequence as Parallel
from revelator.tasks import TRANSLATE_BNF

MONTHS = frozenset(map(str.lower, month_name[1:]))


@dataclass(frozen=True)
class AgreedPlan:
    """A plan in canonical text, the part of all samples whose letters are the same, and how many samples hold."""

    plan: str
    agreement: float
    valid_samples: int


@dataclass(frozen=True)
class AskedLeaf:
    """A leaf as it was asked, its answers, and whether a passage that was found for it states the known answer."""

    question: str
    answers: tuple[str, ...]
    is_supported: bool


def choose_agreed(
    question: AnnotatedQuestion, samples: Sequence[str], least: float, coverage: float
) -> AgreedPlan | str:
    """The plan of the majority, or the reason why there is none.

    A sample holds if it parses, checks, binds, leaves no doubt (`plans.doubts`), has two leaves or more and keeps
    the part `coverage` of the question's names. Samples agree if their letters do, up to the order of `+`; the majority
    must be more than half of all samples and at least the part `least`. Of its plans the most frequent one is taken,
    the first of equals.
    """
    plans = [plan for sample in samples if (plan := _parse_valid(question, sample, coverage))]
    if not plans:
        return "no sample holds"
    letters, count = Counter(map(letters_key, plans)).most_common(1)[0]
    if count * 2 <= len(samples) or count < least * len(samples):
        return "the samples do not agree"
    texts = Counter(render(plan) for plan in plans if letters_key(plan) == letters)
    return AgreedPlan(texts.most_common(1)[0][0], count / len(samples), len(plans))


def _parse_valid(question: AnnotatedQuestion, sample: str, coverage: float) -> Expression | None:
    try:
        plan = parse(sample)
    except ExpressionError:
        return None
    planned = replace(question, route="complex", steps=(), expression=render(plan))
    fault = check_plan(planned) or check_coverage(coverage, planned)
    return None if fault or doubts(plan) or len(leaves(plan)) < 2 else plan


def states_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether a passage holds one of the answers, word by word; a date in any order of its words."""
    words = f" {normalise(text)} "
    return any(_is_in(normalise(answer), words) for answer in answers)


def _is_in(answer: str, words: str) -> bool:
    parts = answer.split()
    if any(part in MONTHS for part in parts):
        return all(f" {part} " in words for part in parts)
    return bool(parts) and f" {answer} " in words


def check_support(plan: str, asked: Sequence[AskedLeaf]) -> str | None:
    """None if a leaf that gives the plan's answer found a passage that states the known one.

    A leaf whose earlier answers are missing is not asked, and finds nothing. What the reader makes of the passages of
    the last leaf does not matter: the embedded one misses many answers that stand there.
    """
    answering = asked if isinstance(parse(plan), Parallel) else asked[-1:]  # any of those side by side
    if any(leaf.is_supported for leaf in answering):
        return None
    return "the leaf that answers finds no passage with the known answer"


def annotate(
    question: AnnotatedQuestion, plan: AgreedPlan, asked: Sequence[AskedLeaf], model: str
) -> AnnotatedQuestion:
    """The question as training data. Its steps are known only if the plan was run (`asked`) and they end in the known
    answer."""
    given = [normalise(answer) for leaf in asked[-1:] for answer in leaf.answers]
    reached = set(given) & {normalise(answer) for answer in question.answers}
    one_each = len(asked) == len(leaves(parse(plan.plan))) and all(len(leaf.answers) == 1 for leaf in asked)
    steps = tuple(AnnotatedStep(leaf.question, leaf.answers) for leaf in asked) if reached and one_each else ()
    return replace(
        question,
        split="train",
        route="complex",
        expression=plan.plan,
        steps=steps,
        passages=(),
        operation="",
        teacher=f"self:{model}",
        agreement={TRANSLATE_BNF.name: plan.agreement},
    )
