"""The graph that a plan is run as, whatever language it is written in: its steps, and what feeds each of them.

A step is a question, an operator with its question, an operation, or a question that is answered from the answers of
other steps: a `[DR]` node of a tree, or a node with children. `{name}` or `{2}` in a text stands for each value of a
step, `{2*}` for all of them at once; the `[2]` of a tree becomes `{2*}`. The steps of a tree are its nodes as they are
numbered, and last the root.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from revelator.plans import bnf
from revelator.plans.art import REFERENCE, Art, Numbered, number_nodes
from revelator.plans.operations import Condition
from revelator.plans.operators import Call, Filter

# What a tree compares, as its gold writes it: `Which …, Ada ([1]) or Bo ([2])?`, or with commas alone. Without it none
# of 272 gold trees that ask which one is right, and with it all are (docs/results.md).
_BESIDE = re.compile(r"(?:^[^,]*,|(?<=\))(?:,| or)) (.+?) \(((?:\[\d+\](?:, )?)+)\)")

NOTHING: Mapping[Any, Any] = MappingProxyType({})


class GraphStep(NamedTuple):
    """One step. `sources`: the index of the producer of each reference in its texts. `is_drawn`: it is answered from
    its children. `inside`: these, or the steps of the operand of an `operation`, which has a `condition`, or none, and
    answers with a value of the steps that are `chosen`. `parts`: those of them that no other one uses, or that the
    operand ends in, and `branches` the steps that lead to each. `labels`: what a comparison calls the answers of its
    parts."""

    text: str
    sources: Mapping[str, int] = NOTHING
    call: Call | None = None
    operation: str = ""
    chosen: Sequence[int] = ()
    condition: Condition | None = None
    inside: Sequence[int] = ()
    parts: Sequence[int] = ()
    branches: Sequence[Sequence[int]] = ()
    labels: Mapping[int, str] = NOTHING
    is_drawn: bool = False

    def takes_all(self, name: str) -> bool:
        """Whether its question is asked once with all values of a reference, `{2*}` or what a `Filter` keeps from, and
        not once for each."""
        if isinstance(self.call, Filter) and any(
            name in bnf.list_placeholders(entity) for entity in self.call.entities
        ):
            return True
        reference = bnf.read_reference(name)
        return reference is not None and reference.is_all

    @property
    def taken_whole(self) -> frozenset[int]:
        """The producers of which each reference takes all values."""
        each = {producer for name, producer in self.sources.items() if not self.takes_all(name)}
        return frozenset(self.sources.values()) - each

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in which a reference may stand."""
        return (self.text, *(self.call.texts if self.call else ()))


@dataclass(frozen=True, slots=True)
class Graph:
    """The steps of a plan, and the `results` that are its answer."""

    steps: tuple[GraphStep, ...]
    results: tuple[int, ...]

    @property
    def sources(self) -> tuple[Mapping[str, int], ...]:
        """Of each step, the index of the producer of each reference."""
        return tuple(step.sources for step in self.steps)


def read_tree(tree: Art) -> Graph:
    """The graph of a tree that has passed its check."""
    nodes = number_nodes(tree)
    needs = [at.needs for at in nodes]
    used: list[set[int]] = [set() for _ in nodes]  # by the nodes below each
    for at in reversed(nodes[1:]):
        used[at.parent or 0] |= {*used[at.number], *needs[at.number]}
    steps = [_read_node(at, needs[at.number], used[at.number]) for at in (*nodes[1:], nodes[0])]
    return Graph(tuple(steps), (len(steps) - 1,))


def _read_node(at: Numbered, needs: Sequence[int], used: set[int]) -> GraphStep:
    """`needs`: the numbers that its texts name; `used`: those that nodes below it name."""
    text, sources = write_references(at.node.question), {f"{number}*": number - 1 for number in needs}
    if at.node.call:
        return GraphStep(text, sources, at.node.call.rewrite(write_references))
    if not at.children and not needs:
        return GraphStep(text)  # the whole tree: the question is asked as it stands
    beside = {} if at.children else _find_names_beside(at.node.question)
    over = at.children or [number for number in needs if number in beside] or needs
    parts = [number - 1 for number in over if number not in used]
    return GraphStep(
        text,
        sources,
        operation="" if at.children else at.node.operation or "judge",
        inside=[number - 1 for number in over],
        parts=parts,
        branches=[[part] for part in parts],
        labels={number - 1: write_references(name) for number, name in beside.items()},
        is_drawn=bool(at.children),
    )


def write_references(text: str) -> str:
    """The text of a tree's node with `{2*}` for `[2]`."""
    return bnf.replace_marks(REFERENCE, bnf.escape(text), lambda number, _: f"{{{int(number)}*}}")


def _find_names_beside(question: str) -> dict[int, str]:
    """The name that a `[DR]` question gives each answer: `Which is older, Ada ([1]) or Bo ([2])?` gives 1 Ada, 2 Bo."""
    return {int(number): m[1] for m in _BESIDE.finditer(question) for number in re.findall(r"\d+", m[2])}
