"""What operations work on: the answers of a plan's chains, each with the values on the way to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from revelator.plans import Atomic, Dependent, Expression, leaves
from serving.executor.choices import EndedCall


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
class Merged:
    """The answers of the whole question and the operation that gave them."""

    answers: tuple[str, ...]
    method: str


class PlanResults(Protocol):
    """What operations read of a `PlanRun`: leaves, the calls of a leaf that gave answers, and whether all calls did."""

    expression: Expression
    leaves: tuple[Atomic, ...]

    def list_answered_calls(self, leaf: int) -> list[EndedCall]: ...

    def is_whole(self, leaf: int) -> bool: ...


def measure_parts(parts: Iterable[Part]) -> int:
    """Characters of their questions and answers."""
    return sum(
        sum(map(len, part.questions)) + sum(len(answer) for member in part.members for answer in member.answers)
        for part in parts
    )


def make_parts(plan: PlanResults, chains: Sequence[Sequence[int]]) -> list[Part]:
    return [make_part(plan, chain) for chain in chains]


def make_part(plan: PlanResults, chain: Sequence[int], questions: Sequence[str] | None = None) -> Part:
    """The part of a chain: its questions, as planned where none are given, and a member for each call of its last."""
    members = tuple(Member(one.choice.lineage, one.answers) for one in plan.list_answered_calls(chain[-1]))
    texts = questions or [plan.leaves[leaf].text for leaf in chain]
    return Part(tuple(texts), members, whole=all(map(plan.is_whole, chain)))


def find_branches(expression: Expression, first: int = 0) -> list[list[int]]:
    """The chains whose last leaves make up the result, each as leaf indices: one for a chain, several for a list."""
    if isinstance(expression, Atomic):
        return [[first]]
    if isinstance(expression, Dependent):
        left = len(leaves(expression.left))
        return [[*range(first, first + left), *branch] for branch in find_branches(expression.right, first + left)]
    found: list[list[int]] = []
    for item in expression.items:
        found += find_branches(item, first)
        first += len(leaves(item))
    return found


def find_chains_before(expression: Expression, leaf: int, first: int = 0) -> list[list[int]]:
    """The chains that lead up to a leaf: those of the left operands before it; none for a leaf that continues none."""
    if isinstance(expression, Atomic):
        return []
    if isinstance(expression, Dependent):
        split = first + len(leaves(expression.left))
        if leaf < split:
            return find_chains_before(expression.left, leaf, first)
        inner = find_chains_before(expression.right, leaf, split)
        return [[*range(first, split), *chain] for chain in inner] or find_branches(expression.left, first)
    for item in expression.items:
        if leaf < first + len(leaves(item)):
            return find_chains_before(item, leaf, first)
        first += len(leaves(item))
    return []


def find_chains_through(expression: Expression, leaf: int, producers: Collection[int]) -> list[list[int]]:
    """Keeps the chains before `leaf` that contain one of `producers`."""
    return [chain for chain in find_chains_before(expression, leaf) if not set(producers).isdisjoint(chain)]
