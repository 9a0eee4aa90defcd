"""What single questions are answered, as a world states it, and plans run over that: the executed answer of a rollout.

A table of answers is a file of annotated questions (`questions.jsonl` of a world): each of its steps is a question that
stands alone and its answer. A plan is run by looking its leaves up, no model and no retrieval: a leaf whose
producer gave several values is looked up with all of them and, if that was never asked, once for each.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from revelator.errors import DataError
from revelator.plans import Atomic, Expression, bind, leaves, substitute, to_letters

JOINT = "; "  # between the values of one answer
FAN_OUT = 64  # look-ups of one leaf
MANY_LEAVES = 5


@dataclass(frozen=True)
class Executed:
    """`results`: the values of each leaf that ends a branch, each in order, branches in any; `asked`: look-ups."""

    results: tuple[tuple[str, ...], ...]
    asked: int


def read_answers(path: Path) -> dict[str, tuple[str, ...]]:
    """Values by question, of every step and every single question of a world's `questions.jsonl` or a folder with it.

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
            answers |= {key(step["question"]): tuple(step["answer"].split(JOINT)) for step in json.loads(line)["steps"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"no annotated question: {error!r}", where=f"{path}, line {number}", hint=hint) from error
    return answers


def key(question: str) -> str:
    """Questions that differ in case or white space are one."""
    return " ".join(question.casefold().split())


def execute(plan: Expression, answers: Mapping[str, tuple[str, ...]]) -> Executed | None:
    """Runs a plan that checks; None when a leaf asks what the table does not hold."""
    bound = bind(plan)
    found: list[tuple[str, ...]] = []
    asked = 0
    for leaf, wired in zip(leaves(plan), bound.sources, strict=True):
        values = {name: found[source] for name, source in wired.items()}
        results = _looked_up(leaf, values, answers)
        if results is None:
            return None
        asked += len(results)
        found.append(tuple(dict.fromkeys(itertools.chain.from_iterable(results))))
    return Executed(tuple(sorted(tuple(sorted(found[i])) for i in bound.results)), asked)


def is_hard(plan: Expression, answers: Mapping[str, tuple[str, ...]]) -> bool:
    """A plan with a group, with five leaves or more, or one that asks a question of each value of an answer."""
    count = len(leaves(plan))
    ran = execute(plan, answers)
    return "(" in to_letters(plan) or count >= MANY_LEAVES or (ran is not None and ran.asked > count)


def _looked_up(
    leaf: Atomic, values: Mapping[str, tuple[str, ...]], answers: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, ...]] | None:
    whole = answers.get(key(substitute(leaf.text, {name: JOINT.join(own) for name, own in values.items()})))
    if whole is not None:
        return [whole]
    choices = list(itertools.islice(itertools.product(*values.values()), FAN_OUT + 1))
    if not values or len(choices) > FAN_OUT:
        return None
    each = [answers.get(key(substitute(leaf.text, dict(zip(values, choice, strict=True))))) for choice in choices]
    return None if None in each else [one for one in each if one is not None]
