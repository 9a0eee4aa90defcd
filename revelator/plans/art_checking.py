"""Can a tree be executed? Every `[i]` must name a node whose answer is there before it is needed.

Execution is post-order: a node is answered after its children, children from left to right. A node may name what has
been answered when its turn comes: earlier siblings, earlier siblings of what it stands in, and what stands below
those. A `[DR]` node must name at least one, unless it is the whole tree: it has nothing else to be answered from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from revelator.plans.art_tree import Art, Call, Filter, Numbered, Relate, Search, numbered, references


@dataclass(frozen=True)
class Fault:
    """What is wrong with node `node`: a code, where (`place`: `children[1].relate.head`), a message, a hint."""

    code: str
    message: str
    node: int
    place: str
    hint: str


def check(art: Art) -> tuple[Fault, ...]:
    """What keeps a tree from being executed, breadth-first; empty if it can be."""
    nodes = numbered(art)
    return tuple(fault for node in nodes for fault in _faults(node, nodes))


def _faults(at: Numbered, nodes: tuple[Numbered, ...]) -> Iterator[Fault]:
    for name, text in _named_texts(at.node):
        for number in references(text):
            if reason := _unready(at, number, nodes):
                message = f"node {at.number} names [{number}], {reason}"
                hint = "name a node that is answered earlier: one to the left of it, or below such a one"
                yield Fault("reference", message, at.number, _place(at, name), hint)
    if at.node.is_direct and at.parent is not None and not references(at.node.question):
        message = f"node {at.number} is answered directly but names no earlier answer"
        hint = "write [i] for the answers that it is drawn from, or give it an operator"
        yield Fault("direct", message, at.number, _place(at, "question"), hint)


def _unready(at: Numbered, number: int, nodes: tuple[Numbered, ...]) -> str | None:
    if number >= len(nodes):
        return f"but the last node is {len(nodes) - 1}"
    other = nodes[number]
    if at.path[: len(other.path)] == other.path:
        return "which is that node itself" if other is at else "which it stands in"
    if other.path[: len(at.path)] == at.path:
        return "which stands below it"
    return None if other.path < at.path else "which is answered later"


def _named_texts(node: Art) -> Iterator[tuple[str, str]]:
    yield "question", node.question
    if node.call is not None:
        yield from zip(_names(node.call), node.call.texts, strict=True)


def _names(call: Call) -> Iterator[str]:
    match call:
        case Search():
            yield from ("search.name", "search.descriptor")
        case Relate():
            yield from ("relate.head", "relate.to")
        case Filter(entities):
            yield from (*(f"filter.entities[{place}]" for place in range(len(entities))), "filter.condition")


def _place(at: Numbered, name: str) -> str:
    return "".join(f"children[{place}]." for place in at.path) + name
