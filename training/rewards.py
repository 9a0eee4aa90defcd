"""What a rollout is worth: rewards in [0, 1] from our own parser, checker and binder, and from executing the plan.

Each reward takes a row (task, prompt, gold) and what the model wrote, and gives None where it does not fit the task, so
that GRPO leaves it out of that row's sum. Nothing constrains rollouts: a reward that every rollout earns teaches
nothing.

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
from revelator.plans import Atomic, Expression, bind, leaves, parse, substitute, to_letters
from revelator.plans.language import BNF
from revelator.plans.names import find_name_words, find_words
from revelator.tasks import TASKS
from revelator.trace import join_answers

FAN_OUT = 64  # look-ups of one leaf
MANY_LEAVES = 5

Answers = Mapping[str, tuple[str, ...]]  # values by question
Reward = Callable[[str, str, str, str], float | None]  # task, prompt, gold (JSON), output


def has_executable_plans(task: str) -> bool:
    """Whether the task writes plans whose leaves are questions that a table of answers can answer."""
    return TASKS[task].language is BNF


# Rewards


def valid(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards an output that the task's strict parser accepts and, if it is a plan, that is valid."""
    return float(_read(task, output) is not None)


def binding(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards the F1 over edges (which leaf uses which leaf's result) against gold; leaves are known by their place."""
    if not has_executable_plans(task):
        return None
    plan = _read(task, output)
    if plan is None:
        return 0.0
    ours, wanted = _list_edges(plan), _list_edges(parse(json.loads(gold)))
    return 2 * len(ours & wanted) / (len(ours) + len(wanted)) if ours or wanted else 1.0


def entities(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards the share of name words that the output keeps, of those of the question that gold keeps, with repeats.

    None for label tasks, which copy nothing. A plan must check, or it earns nothing for repeating the question.
    """
    if TASKS[task].labels:
        return None
    wanted = Counter(find_words(_join_texts(gold)))
    names = {word: wanted[word] for word in find_name_words(TASKS[task].question(prompt)) if word in wanted}
    if _read(task, output) is None:
        return 0.0
    written = Counter(find_words(output))
    kept = sum(min(count, written[word]) for word, count in names.items())
    return kept / sum(names.values()) if names else 1.0


def leaf_count(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards the right number of leaves of a plan, or parts of a list: 1 minus the relative difference from gold."""
    if task == "decompose":
        count, wanted = len, len(json.loads(gold))
    elif has_executable_plans(task):
        count, wanted = BNF.count_leaves, BNF.count_leaves(parse(json.loads(gold)))
    else:
        return None
    read = _read(task, output)
    if read is None:
        return 0.0
    ours = count(read)
    return max(0.0, 1 - abs(ours - wanted) / wanted)


def executed(answers: Answers, task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards a plan that, run over `answers`, gives the values that gold gives; None if gold cannot be run."""
    if not has_executable_plans(task):
        return None
    wanted = execute(parse(json.loads(gold)), answers)
    if wanted is None:
        return None
    plan = _read(task, output)
    found = execute(plan, answers) if plan is not None else None
    return float(found is not None and found.results == wanted.results)


def exact(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards a plan that equals gold word for word: other plans may give the same values."""
    if not has_executable_plans(task):
        return None
    plan = _read(task, output)
    return float(plan is not None and plan == parse(json.loads(gold)))


def label(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Rewards the right label; None for tasks that write."""
    return float(output == json.loads(gold)) if TASKS[task].labels else None


REWARDS: dict[str, Reward] = {
    "valid": valid,
    "binding": binding,
    "entities": entities,
    "leaves": leaf_count,
    "executed": partial(executed, {}),
    "exact": exact,
    "label": label,
}


def make_reward_functions(weights: Mapping[str, float], answers: Answers) -> list[Callable[..., list[float | None]]]:
    """Wraps the rewards of `weights` for TRL: each takes the columns of a batch and returns a list of values."""
    chosen = REWARDS | {"executed": partial(executed, answers)}
    return [_make_batched(name, chosen[name]) for name in weights]


def _make_batched(name: str, reward: Reward) -> Callable[..., list[float | None]]:
    def values(
        prompts: list[str], completions: list[str], task: list[str], gold: list[str], **_: Any
    ) -> list[float | None]:
        rows = zip(task, prompts, gold, completions, strict=True)
        return [reward(own, prompt, wanted, output.strip()) for own, prompt, wanted, output in rows]

    values.__name__ = name
    return values


@lru_cache(maxsize=4096)
def _read(task: str, output: str) -> Any:
    """Parses an output; None if the task's parser refuses it. Cached, because several rewards read the same output."""
    return TASKS[task].sound(output)


def _list_edges(plan: Expression) -> set[tuple[int, int]]:
    return {(source, leaf) for leaf, wired in enumerate(bind(plan).sources) for source in wired.values()}


def _join_texts(gold: str) -> str:
    value = json.loads(gold)
    return value if isinstance(value, str) else " ".join(value)


# Executing a plan over a table of answers


@dataclass(frozen=True)
class Execution:
    """The result of a plan: the sorted values of each leaf that ends a branch, and the number of questions asked."""

    results: tuple[tuple[str, ...], ...]
    questions: int


def read_answers(path: Path) -> dict[str, tuple[str, ...]]:
    """Reads the values of every step and every single question of a world's `questions.jsonl`, or of a folder with it.

    Raises DataError for a file that is not there or holds something else.
    """
    path = path / "questions.jsonl" if path.is_dir() else path
    hint = "name the folder that `revelator data world` wrote, or a file of annotated questions"
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


def execute(plan: Expression, answers: Answers) -> Execution | None:
    """Runs a plan that checks by looking its leaves up; None when a leaf asks what the table does not hold.

    A leaf whose producer gave several values is looked up with all of them and, if that was never asked, once for each.
    """
    bound = bind(plan)
    found: list[tuple[str, ...]] = []
    questions = 0
    for leaf, wired in zip(leaves(plan), bound.sources, strict=True):
        values = {name: found[source] for name, source in wired.items()}
        results = _look_up(leaf, values, answers)
        if results is None:
            return None
        questions += len(results)
        found.append(tuple(dict.fromkeys(itertools.chain.from_iterable(results))))
    return Execution(tuple(sorted(tuple(sorted(found[i])) for i in bound.results)), questions)


def is_hard(plan: Expression, answers: Answers) -> bool:
    """Whether a plan has a group, or five leaves or more, or asks a question of each value of an answer."""
    count = len(leaves(plan))
    ran = execute(plan, answers)
    return "(" in to_letters(plan) or count >= MANY_LEAVES or (ran is not None and ran.questions > count)


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
