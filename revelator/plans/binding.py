"""Decides which step feeds each placeholder, from the form of the plan alone, whatever its words.

A number names its step, which must stand in a left operand. A name stands for what it stood for further left. A new
name takes a result of the left operand (QCompiler, section 3): the first new name its first result, the next one the
next, and then those of the left operands around. Where a right operand knows all its names and none stands for a
step of its left, the last takes the first result: a right operand always uses its left.
"""

from __future__ import annotations

from itertools import islice, repeat
from typing import NamedTuple

from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Operation,
    read_reference,
    replace_placeholders,
    rewrite,
    spell_operation,
)
from revelator.plans.graph import Graph, GraphStep
from revelator.plans.operators import read_call


def bind(expression: Expression) -> Graph:
    """The graph of a plan: finds the producer of each placeholder. One that has none in scope (`check` reports it) is
    absent from the sources of its step."""
    return _Binder().bind(expression)


def spell_by_numbers(expression: Expression) -> Expression:
    """The same plan with the number of its step in place of each name that has a producer."""
    steps = bind(expression).steps
    return rewrite(
        expression, lambda leaf, i: replace_placeholders(leaf.text, lambda name: spell_number(name, steps[i]))
    )


def spell_number(name: str, step: GraphStep) -> str:
    """The placeholder `name` of a step by the number of its producer; as it is where it has none.

    Names for one step take all its values only together: where one of them takes each value, so do the others.
    """
    if name not in step.sources:
        return f"{{{name}}}"
    producer = step.sources[name]
    return f"{{{producer + 1}{'*' if producer in step.taken_whole else ''}}}"


class _Results(NamedTuple):
    """What a part of the plan offers: the chains of steps that lead to its results, one for a chain and several for a
    list; the names that it bound; and where its steps stand."""

    chains: list[list[int]]
    names: dict[str, int]
    steps: range

    @property
    def last(self) -> tuple[int, ...]:
        return tuple(chain[-1] for chain in self.chains)


class _Binder:
    def __init__(self) -> None:
        self.steps: list[GraphStep] = []

    def bind(self, root: Expression) -> Graph:
        results = self._visit(root, (), {})
        return Graph(tuple(self.steps), results.last)

    def _visit(self, node: Expression, scope: tuple[_Results, ...], bound: dict[str, int]) -> _Results:
        """`scope`: the left operands that this node stands to the right of, nearest first; `bound`: what the names in
        it stand for."""
        start = len(self.steps)
        if type(node) is Atomic:
            found = {name: bound[name] for name in node.placeholders if name in bound}
            for name in node.placeholders:
                reference = read_reference(name)
                if reference and any(reference.number - 1 in left.steps for left in scope):
                    found[name] = reference.number - 1
            return self._add(GraphStep(node.text, found, read_call(node.text)), start, {})
        if type(node) is Operation:
            inside = self._visit(node.operand, scope, bound)
            step = GraphStep(
                f"=> {spell_operation(node)}",
                operation=node.name,
                chosen=node.references,
                condition=node.condition,
                inside=inside.steps,
                parts=inside.last,
                branches=inside.chains,
            )
            return self._add(step, start, inside.names)
        if type(node) is Dependent:
            left = self._visit(node.left, scope, bound)
            assigned = _assign(node.right, (left, *scope), bound)
            right = self._visit(node.right, (left, *scope), {**bound, **assigned})
            chains = [[*left.steps, *chain] for chain in right.chains]
            return self._end(chains, {**left.names, **assigned, **right.names}, start)
        parts = [self._visit(item, scope, bound) for item in node.children]
        names = {name: source for part in parts for name, source in part.names.items()}
        return self._end([chain for part in parts for chain in part.chains], names, start)

    def _add(self, step: GraphStep, start: int, names: dict[str, int]) -> _Results:
        self.steps.append(step)
        return self._end([[*range(start, len(self.steps))]], names, start)

    def _end(self, chains: list[list[int]], names: dict[str, int], start: int) -> _Results:
        return _Results(chains, names, range(start, len(self.steps)))


def _assign(right: Expression, scope: tuple[_Results, ...], bound: dict[str, int]) -> dict[str, int]:
    """What the names stand for that `right` uses outside its own inner right operands; its left is the first of
    `scope`."""
    used = (name for leaf in list_starts(right) for name in leaf.placeholders)
    names = [name for name in dict.fromkeys(used) if not read_reference(name)]
    left, seen = scope[0], {**bound, **scope[0].names}
    known = {name: seen[name] for name in names if name in seen}
    new = [name for name in names if name not in seen]
    if names and not new and not any(source in left.steps for source in known.values()):
        new = [names[-1]]
    offered = islice((source for results in scope for source in results.last), len(new))
    taken = [*offered, *repeat(left.last[-1], len(new))]
    return known | dict(zip(new, taken, strict=False))


def list_starts(right: Expression) -> list[Atomic]:
    """Lists the leaves of `right` that have nothing inside `right` to their left."""
    if type(right) is Atomic:
        return [right]
    first = right.children[:1] if type(right) is Dependent else right.children
    return [leaf for child in first for leaf in list_starts(child)]
