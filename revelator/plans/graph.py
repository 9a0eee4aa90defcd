"""The graph that a plan is run as, whatever language it is written in: its steps, and what feeds each of them.

A step is a question, an operator with its question, an operation, or a question that is answered from the answers of
other steps: a `[DR]` node of a tree, or a node with children. `{name}` or `{2}` in a text stands for each value of a
step, `{2*}` for all of them at once; the `[2]` of a tree becomes `{2*}`. The steps of a tree are its nodes as they are
numbered, and last the root.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from revelator.plans import art, bnf
from revelator.plans.art import Art, Numbered, number_nodes
from revelator.plans.operators import Call

_BESIDE = re.compile(r"(?:^[^,]*,|(?<=\))(?:,| or)) (.+?) \(((?:\[\d+\](?:, )?)+)\)")


@dataclass(frozen=True, slots=True)
class GraphStep:
    """One step. `sources`: the index of the producer of each reference in its texts. `is_drawn`: its question is
    answered from the answers of other steps. `inside`: these, or the steps of an operation's operand. `parts`: those of
    them that no other one uses, or that the operand ends in. `labels`: what a comparison calls the answers of its
    parts."""

    text: str
    sources: Mapping[str, int] = field(default_factory=dict)
    call: Call | None = None
    operation: bnf.Operation | None = None
    inside: Sequence[int] = ()
    parts: Sequence[int] = ()
    labels: Mapping[int, str] = field(default_factory=dict)
    is_drawn: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in which a reference may stand."""
        return (self.text, *(self.call.texts if self.call else ()))


@dataclass(frozen=True, slots=True)
class Graph:
    """The steps of a plan, and the `results` that are its answer. `is_explicit`: the plan names steps by number or
    spells an operation, so that nothing of it is guessed from words."""

    steps: tuple[GraphStep, ...]
    results: tuple[int, ...]
    is_explicit: bool

    @property
    def sources(self) -> tuple[Mapping[str, int], ...]:
        """Of each step, the index of the producer of each reference."""
        return tuple(step.sources for step in self.steps)


def read_tree(tree: Art) -> Graph:
    """The graph of a tree that has passed its check."""
    root, *below = nodes = number_nodes(tree)
    used: list[set[int]] = [set() for _ in nodes]  # by the nodes below each
    for at in reversed(nodes[1:]):
        used[at.parent or 0] |= {*used[at.number], *at.needs}
    return Graph(tuple(_read_node(at, used[at.number]) for at in (*below, root)), (len(below),), True)


def _read_node(at: Numbered, used: set[int]) -> GraphStep:
    """`used`: the numbers that nodes below it name."""
    sources = {f"{number}*": number - 1 for number in at.needs}
    if call := at.node.call:
        return GraphStep(write_references(at.node.question), sources, call.rewrite(write_references))
    beside = {} if at.children else _find_names_beside(at.node.question)
    over = at.children or [number for number in at.needs if number in beside] or at.needs
    return GraphStep(
        write_references(at.node.question),
        sources,
        inside=[number - 1 for number in over],
        parts=[number - 1 for number in over if number not in used],
        labels={number - 1: write_references(name) for number, name in beside.items()},
        is_drawn=True,
    )


def write_references(text: str) -> str:
    """The text of a tree's node with `{2*}` for `[2]`."""
    return art.substitute(bnf.escape(text), {number: [f"{{{number}*}}"] for number in art.references(text)})


def _find_names_beside(question: str) -> dict[int, str]:
    """The name that a `[DR]` question gives each answer: `Which is older, Ada ([1]) or Bo ([2])?` gives 1 Ada, 2 Bo."""
    return {int(number): m[1] for m in _BESIDE.finditer(question) for number in re.findall(r"\d+", m[2])}
