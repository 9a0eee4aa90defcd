"""What operations work on: the answers of a plan's chains, each with the values on the way to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from revelator.plans import Atomic, Dependent, Expression, Operation, list_steps


@dataclass(frozen=True)
class Member:
    """One way through a chain: the value taken for each placeholder, first taken first, and the answers at its end."""

    lineage: Mapping[str, str]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One chain of a plan: its questions as planned, first asked first, and its members (several after a fan-out).

    `whole`: every value on the way was asked with, and every call gave an answer. No operation is sure of a part that
    is not whole: how many there are, which is the longest, what they come to.
    """

    questions: tuple[str, ...]
    members: tuple[Member, ...]
    whole: bool = True

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(answer for member in self.members for answer in member.answers))


@dataclass(frozen=True)
class MergedAnswer:
    """The answers of the whole question and the operation that gave them. `is_verdict`: the answer is yes or no."""

    answers: tuple[str, ...]
    method: str
    is_verdict: bool = False


def measure_parts(parts: Iterable[Part]) -> int:
    """Characters of their questions and answers."""
    return sum(
        sum(map(len, part.questions)) + sum(len(answer) for member in part.members for answer in member.answers)
        for part in parts
    )


def find_branches(expression: Expression, first: int = 0) -> list[list[int]]:
    """The chains whose last steps make up the result, each as step indices: one for a chain, several for a list."""
    if isinstance(expression, Atomic | Operation):
        return [[*range(first, first + len(list_steps(expression)))]]
    if isinstance(expression, Dependent):
        left = len(list_steps(expression.left))
        return [[*range(first, first + left), *branch] for branch in find_branches(expression.right, first + left)]
    found: list[list[int]] = []
    for item in expression.items:
        found += find_branches(item, first)
        first += len(list_steps(item))
    return found


def find_chains_before(expression: Expression, leaf: int, first: int = 0) -> list[list[int]]:
    """The chains that lead up to a leaf: those of the left operands before it; none for a leaf that continues none."""
    if isinstance(expression, Atomic):
        return []
    if isinstance(expression, Operation):
        return find_chains_before(expression.operand, leaf, first)
    if isinstance(expression, Dependent):
        split = first + len(list_steps(expression.left))
        if leaf < split:
            return find_chains_before(expression.left, leaf, first)
        inner = find_chains_before(expression.right, leaf, split)
        return [[*range(first, split), *chain] for chain in inner] or find_branches(expression.left, first)
    for item in expression.items:
        if leaf < first + len(list_steps(item)):
            return find_chains_before(item, leaf, first)
        first += len(list_steps(item))
    return []
