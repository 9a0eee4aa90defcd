"""What a rollout is worth: rewards in [0, 1] from our own parser, checker and binder, and from executing the plan.

Each takes a row (task, prompt, gold) and what the model wrote, and gives None where it does not fit the task, so that
GRPO leaves it out of that row's sum. Nothing constrains rollouts: a reward that every rollout earns teaches nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from revelator.plans import Expression, bind, leaves, parse
from revelator.plans.names import name_words, words_in
from revelator.tasks import TASKS
from training.answers import execute

TRANSLATE = "translate_bnf"
Reward = Callable[[str, str, str, str], float | None]  # task, prompt, gold (JSON), output
Answers = Mapping[str, tuple[str, ...]]


def valid(task: str, prompt: str, gold: str, output: str) -> float | None:
    """The output is what its task promises: its strict parser takes it, and a plan checks."""
    return float(_read(task, output) is not None)


def binding(task: str, prompt: str, gold: str, output: str) -> float | None:
    """F1 over edges: which leaf takes which leaf's result, against the gold plan's; leaves are known by their place."""
    if task != TRANSLATE:
        return None
    plan = _read(task, output)
    if plan is None:
        return 0.0
    ours, wanted = _edges(plan), _edges(parse(json.loads(gold)))
    return 2 * len(ours & wanted) / (len(ours) + len(wanted)) if ours or wanted else 1.0


def entities(task: str, prompt: str, gold: str, output: str) -> float | None:
    """Share of the question's name words that the gold output keeps, as often as it does, which the output keeps.

    None for label tasks, which copy nothing. A plan must check, or it earns nothing for repeating the question.
    """
    if TASKS[task].labels:
        return None
    wanted = Counter(words_in(_text(gold)))
    names = {word: wanted[word] for word in name_words(TASKS[task].question(prompt)) if word in wanted}
    if _read(task, output) is None:
        return 0.0
    written = Counter(words_in(output))
    kept = sum(min(count, written[word]) for word, count in names.items())
    return kept / sum(names.values()) if names else 1.0


def leaf_count(task: str, prompt: str, gold: str, output: str) -> float | None:
    """As many leaves as the gold plan, or parts as the gold list, has: 1 less the share of it by which they differ."""
    if task not in (TRANSLATE, "decompose"):
        return None
    read = _read(task, output)
    if read is None:
        return 0.0
    ours = len(leaves(read)) if task == TRANSLATE else len(read)
    wanted = len(leaves(parse(json.loads(gold)))) if task == TRANSLATE else len(json.loads(gold))
    return max(0.0, 1 - abs(ours - wanted) / wanted)


def executed(answers: Answers, task: str, prompt: str, gold: str, output: str) -> float | None:
    """The plan, run over `answers`, ends in the values that the gold plan ends in; None where gold cannot be run."""
    if task != TRANSLATE:
        return None
    wanted = execute(parse(json.loads(gold)), answers)
    if wanted is None:
        return None
    plan = _read(task, output)
    found = execute(plan, answers) if plan is not None else None
    return float(found is not None and found.results == wanted.results)


def exact(task: str, prompt: str, gold: str, output: str) -> float | None:
    """The plan is gold's tree, word for word: others may end in the same values."""
    if task != TRANSLATE:
        return None
    plan = _read(task, output)
    return float(plan is not None and plan == parse(json.loads(gold)))


def label(task: str, prompt: str, gold: str, output: str) -> float | None:
    """The right label; None for tasks that write."""
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


def reward_functions(weights: Mapping[str, float], answers: Answers) -> list[Callable[..., list[float | None]]]:
    """The rewards of `weights` as TRL calls them: columns of a batch in, a list of values out, each under its name."""
    chosen = REWARDS | {"executed": partial(executed, answers)}
    return [_batched(name, chosen[name]) for name in weights]


def _batched(name: str, reward: Reward) -> Callable[..., list[float | None]]:
    def values(
        prompts: list[str], completions: list[str], task: list[str], gold: list[str], **_: Any
    ) -> list[float | None]:
        rows = zip(task, prompts, gold, completions, strict=True)
        return [reward(own, prompt, wanted, output.strip()) for own, prompt, wanted, output in rows]

    values.__name__ = name
    return values


@lru_cache(maxsize=4096)
def _read(task: str, output: str) -> Any:
    """The typed output, None when it is not what the task promises; several rewards ask for the same one."""
    return TASKS[task].sound(output)


def _edges(plan: Expression) -> set[tuple[int, int]]:
    return {(source, leaf) for leaf, wired in enumerate(bind(plan).sources) for source in wired.values()}


def _text(gold: str) -> str:
    value = json.loads(gold)
    return value if isinstance(value, str) else " ".join(value)
