"""From a plan's answers to the parts that operations by code work on (`serving.merge`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from revelator.plans import Atomic, Expression
from serving.executor.branches import before, leading
from serving.executor.choices import Answered, Choice, wants_all
from serving.executor.threads import apart
from serving.merge import Member, Merged, Part, compute_within, size_of


class Plan(Protocol):
    """What is read of a `PlanRun`: its leaves, the calls of each that gave answers, and whether that is all of it."""

    expression: Expression
    leaves: tuple[Atomic, ...]

    def answered(self, leaf: int) -> list[Answered]: ...

    def is_whole(self, leaf: int) -> bool: ...


def parts_of(plan: Plan, chains: Sequence[Sequence[int]]) -> list[Part]:
    """One part a chain: its questions as planned, and a member for each call of its last leaf."""
    return [_part(plan, chain, [plan.leaves[leaf].text for leaf in chain]) for chain in chains]


async def operate(plan: Plan, leaf: int, sources: Mapping[str, int], choice: Choice, asked: str) -> Merged | None:
    """The answer of a leaf that compares, counts or adds up what came before it, by code; None where it is not sure."""
    text = plan.leaves[leaf].text
    values = {
        name: _values(plan, producer)
        if wants_all(text, name)
        else Part((_question(plan, producer),), (Member({}, (choice.values[name],)),))
        for name, producer in sources.items()
    }
    chains = leading(plan.expression, leaf, sources.values())
    ends = [_part(plan, chain, [_question(plan, i) for i in chain]) for chain in chains]
    size = len(text) + len(asked) + size_of([*values.values(), *ends])
    return await apart(size, partial(compute_within, text, asked, values, ends))


def _part(plan: Plan, chain: Sequence[int], questions: Sequence[str]) -> Part:
    return Part(tuple(questions), _members(plan, chain[-1]), whole=all(map(plan.is_whole, chain)))


def _values(plan: Plan, producer: int) -> Part:
    """What a whole list of values stands for."""
    behind = {leaf for chain in before(plan.expression, producer) for leaf in chain}
    whole = all(map(plan.is_whole, (*behind, producer)))
    return Part((_question(plan, producer),), _members(plan, producer), whole)


def _question(plan: Plan, leaf: int) -> str:
    """What a leaf was asked, where it was asked one thing; otherwise what was planned."""
    calls = plan.answered(leaf)
    return calls[0].node.asked or plan.leaves[leaf].text if len(calls) == 1 else plan.leaves[leaf].text


def _members(plan: Plan, leaf: int) -> tuple[Member, ...]:
    return tuple([Member(one.choice.lineage, one.answers) for one in plan.answered(leaf)])
