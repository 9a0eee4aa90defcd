"""Operations over a plan's answers: the chains that lead to a value, and the parts that code computes with
(`serving.executor.operations`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from revelator.plans import Atomic, Dependent, Expression, leaves
from serving.executor.choices import Choice, EndedCall, wants_all
from serving.executor.operations.parts import Member, Merged, Part, size_of
from serving.executor.operations.within import compute_within
from serving.pauses import offload


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


class PlanResults(Protocol):
    """What operations read of a `PlanRun`: leaves, the calls of a leaf that gave answers, and whether all calls did."""

    expression: Expression
    leaves: tuple[Atomic, ...]

    def answered_calls(self, leaf: int) -> list[EndedCall]: ...

    def is_whole(self, leaf: int) -> bool: ...


def make_parts(plan: PlanResults, chains: Sequence[Sequence[int]]) -> list[Part]:
    """One part a chain: its questions as planned, and a member for each call of its last leaf."""
    return [_make_part(plan, chain, [plan.leaves[leaf].text for leaf in chain]) for chain in chains]


async def compute_leaf(
    plan: PlanResults, leaf: int, sources: Mapping[str, int], choice: Choice, asked: str
) -> Merged | None:
    """Computes a leaf that compares, counts or adds up earlier answers; None where code is not sure."""
    text = plan.leaves[leaf].text
    values = {
        name: _gather_values(plan, producer)
        if wants_all(text, name)
        else Part((_find_question(plan, producer),), (Member({}, (choice.values[name],)),))
        for name, producer in sources.items()
    }
    chains = find_chains_through(plan.expression, leaf, sources.values())
    ends = [_make_part(plan, chain, [_find_question(plan, i) for i in chain]) for chain in chains]
    size = len(text) + len(asked) + size_of([*values.values(), *ends])
    return await offload(size, partial(compute_within, text, asked, values, ends))


def _make_part(plan: PlanResults, chain: Sequence[int], questions: Sequence[str]) -> Part:
    return Part(tuple(questions), _gather_members(plan, chain[-1]), whole=all(map(plan.is_whole, chain)))


def _gather_values(plan: PlanResults, producer: int) -> Part:
    """The part that a whole list of values stands for."""
    behind = {leaf for chain in find_chains_before(plan.expression, producer) for leaf in chain}
    whole = all(map(plan.is_whole, (*behind, producer)))
    return Part((_find_question(plan, producer),), _gather_members(plan, producer), whole)


def _find_question(plan: PlanResults, leaf: int) -> str:
    """The question that a leaf was asked, or its planned text where it was asked for several values."""
    calls = plan.answered_calls(leaf)
    return calls[0].node.asked or plan.leaves[leaf].text if len(calls) == 1 else plan.leaves[leaf].text


def _gather_members(plan: PlanResults, leaf: int) -> tuple[Member, ...]:
    return tuple([Member(one.choice.lineage, one.answers) for one in plan.answered_calls(leaf)])
