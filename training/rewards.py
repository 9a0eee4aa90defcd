"""What a rollout is worth: rewards in [0, 1] from our own parser, checker and binder, and from executing the plan.

Each reward compares what the model wrote with the gold plan. Nothing constrains rollouts: a reward that every rollout
earns teaches nothing.

A plan is executed over a table of answers, without a model and without retrieval. The table is a file of annotated
questions (`questions.jsonl` of a world): each of their steps is a question that stands alone and its answer.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from revelator.errors import DataError
from revelator.plans import Atomic, Expression, Operation, bind, list_leaves, list_steps, parse, render, substitute
from revelator.plans.language import BNF
from revelator.plans.names import find_name_words, find_words
from revelator.tasks import TASKS
from revelator.trace import join_answers

TASK = next(task for task in TASKS.values() if task.language is BNF)  # whose leaves a table of answers can answer
FAN_OUT = 64  # look-ups of one leaf

Answers = Mapping[str, tuple[str, ...]]  # values by question


@dataclass(frozen=True)
class Rollout:
    """A question, its gold plan, what the model wrote, and the plan that this is: None unless it parses and checks."""

    question: str
    gold: Expression
    output: str
    plan: Expression | None


Reward = Callable[[Rollout], float | None]


def score_validity(rollout: Rollout) -> float:
    """Rewards a plan that parses and checks."""
    return float(rollout.plan is not None)


def score_edges(rollout: Rollout) -> float:
    """Rewards the F1 over edges (which leaf uses which leaf's result) against gold; leaves are known by their place."""
    if rollout.plan is None:
        return 0.0
    ours, wanted = _list_edges(rollout.plan), _list_edges(rollout.gold)
    return 2 * len(ours & wanted) / (len(ours) + len(wanted)) if ours or wanted else 1.0


def score_names(rollout: Rollout) -> float:
    """Rewards the share of name words that a plan keeps, of those of the question that gold keeps, with repeats. What
    is no plan earns nothing for repeating the question."""
    if rollout.plan is None:
        return 0.0
    wanted, written = (Counter(find_words(text)) for text in (render(rollout.gold), rollout.output))
    names = {word: wanted[word] for word in find_name_words(rollout.question) if word in wanted}
    kept = sum(min(count, written[word]) for word, count in names.items())
    return kept / sum(names.values()) if names else 1.0


def score_leaf_count(rollout: Rollout) -> float:
    """Rewards the right number of leaves: 1 minus the relative difference from gold."""
    if rollout.plan is None:
        return 0.0
    ours, wanted = len(list_leaves(rollout.plan)), len(list_leaves(rollout.gold))
    return max(0.0, 1 - abs(ours - wanted) / wanted)


def score_execution(answers: Answers, rollout: Rollout) -> float | None:
    """Rewards a plan that, run over `answers`, gives the values that gold gives; None if gold cannot be run."""
    wanted = execute(rollout.gold, answers)
    if wanted is None:
        return None
    return float(rollout.plan is not None and execute(rollout.plan, answers) == wanted)


def score_equality(rollout: Rollout) -> float:
    """Rewards a plan that equals gold word for word: other plans may give the same values."""
    return float(rollout.plan == rollout.gold)


REWARDS: dict[str, Reward] = {
    "valid": score_validity,
    "binding": score_edges,
    "entities": score_names,
    "leaves": score_leaf_count,
    "executed": partial(score_execution, {}),
    "exact": score_equality,
}


def make_reward_functions(weights: Mapping[str, float], answers: Answers) -> list[Callable[..., list[float | None]]]:
    """Wraps the rewards of `weights` for TRL: each takes the columns of a batch and returns a list of values."""
    chosen = REWARDS | {"executed": partial(score_execution, answers)}
    return [_make_batched(name, chosen[name]) for name in weights]


def _make_batched(name: str, reward: Reward) -> Callable[..., list[float | None]]:
    def values(prompts: list[str], completions: list[str], gold: list[str], **_: Any) -> list[float | None]:
        return [reward(_read(*row)) for row in zip(prompts, gold, completions, strict=True)]

    values.__name__ = name
    return values


@lru_cache(maxsize=4096)
def _read(prompt: str, gold: str, output: str) -> Rollout:
    """Reads a rollout, with gold as JSON. Cached, because each reward reads it."""
    output = output.strip()
    return Rollout(TASK.read_question(prompt), parse(json.loads(gold)), output, TASK.parse_sound(output))


def _list_edges(plan: Expression) -> set[tuple[int, int]]:
    return {(source, leaf) for leaf, wired in enumerate(bind(plan).sources) for source in wired.values()}


# Executing a plan over a table of answers


def read_answers(path: Path) -> dict[str, tuple[str, ...]]:
    """Reads the values of every step and every single question of a world's `questions.jsonl`, or of a folder with it.

    Raises DataError for a file that is not there or holds something else.
    """
    path = path / "questions.jsonl" if path.is_dir() else path
    hint = "name the folder of a world (`rows: world`), or a file of annotated questions"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the answers cannot be read: {error}", where=str(path), hint=hint) from error
    answers: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, 1):
        try:
            for step in json.loads(line)["steps"]:
                if not isinstance(step["answers"], list):
                    raise TypeError("the answers of a step are no list")
                answers[make_question_key(step["question"])] = tuple(step["answers"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"no annotated question: {error!r}", where=f"{path}, line {number}", hint=hint) from error
    return answers


def make_question_key(question: str) -> str:
    """Makes one key for questions that differ only in case or white space."""
    return " ".join(question.casefold().split())


def execute(plan: Expression, answers: Answers) -> tuple[tuple[str, ...], ...] | None:
    """Runs a plan that checks by looking its leaves up: the sorted values of each leaf that ends a branch. None when a
    leaf asks what the table does not hold.

    A leaf whose producer gave several values is looked up with all of them and, if that was never asked, once for each.
    """
    bound = bind(plan)
    found: list[tuple[str, ...]] = []
    for leaf, wired in zip(list_steps(plan), bound.sources, strict=True):
        if isinstance(leaf, Operation):
            return None  # a table of answers holds none of an operation
        values = {name: found[source] for name, source in wired.items()}
        results = _look_up(leaf, values, answers)
        if results is None:
            return None
        found.append(tuple(dict.fromkeys(itertools.chain.from_iterable(results))))
    return tuple(sorted(tuple(sorted(found[i])) for i in bound.results))


def _look_up(leaf: Atomic, values: Answers, answers: Answers) -> list[tuple[str, ...]] | None:
    """Looks up the answers of a leaf whose placeholders have `values`: for all values at once, or for each value."""

    def answer(filled: Mapping[str, str]) -> tuple[str, ...] | None:
        return answers.get(make_question_key(substitute(leaf.text, filled)))

    whole = answer({name: join_answers(own) for name, own in values.items()})
    if whole is not None:
        return [whole]
    choices = list(itertools.islice(itertools.product(*values.values()), FAN_OUT + 1))
    if not values or len(choices) > FAN_OUT:
        return None
    each = [answer(dict(zip(values, choice, strict=True))) for choice in choices]
    return None if None in each else [one for one in each if one is not None]
