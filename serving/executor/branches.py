"""The chains of an expression: which leaves lead to which results."""

from __future__ import annotations

from collections.abc import Collection

from revelator.plans import Atomic, Dependent, Expression, leaves


def branches(expression: Expression, first: int = 0) -> list[list[int]]:
    """The chains whose last leaves make up the result, each as leaf indices: one for a chain, several for a list."""
    if isinstance(expression, Atomic):
        return [[first]]
    if isinstance(expression, Dependent):
        left = len(leaves(expression.left))
        return [[*range(first, first + left), *branch] for branch in branches(expression.right, first + left)]
    found: list[list[int]] = []
    for item in expression.items:
        found += branches(item, first)
        first += len(leaves(item))
    return found


def before(expression: Expression, leaf: int, first: int = 0) -> list[list[int]]:
    """The chains that lead up to a leaf: those of the left operands before it; none for a leaf that continues none."""
    if isinstance(expression, Atomic):
        return []
    if isinstance(expression, Dependent):
        split = first + len(leaves(expression.left))
        if leaf < split:
            return before(expression.left, leaf, first)
        inner = before(expression.right, leaf, split)
        return [[*range(first, split), *chain] for chain in inner] or branches(expression.left, first)
    for item in expression.items:
        if leaf < first + len(leaves(item)):
            return before(item, leaf, first)
        first += len(leaves(item))
    return []


def leading(expression: Expression, leaf: int, producers: Collection[int]) -> list[list[int]]:
    """The chains before a leaf that one of its producers stands in."""
    return [chain for chain in before(expression, leaf) if not set(producers).isdisjoint(chain)]
