"""What the trees of the plan languages share: how to walk and draw them and, of bnf and logic, the nodes.

A node of any language has `children`, left to right; a leaf has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from revelator.plans.faults import Span

MAX_DEPTH = 200  # nodes from the root to the deepest leaf: every walk may recurse; gold plans of public sets have 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a plan in `bnf` or `logic`; `span` is where it stands in the text that was parsed. The constructor
    raises ValueError beyond `MAX_DEPTH`."""

    span: Span | None = field(default=None, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        depth = 1 + max((child.depth for child in self.children), default=0)
        if depth > MAX_DEPTH:
            raise ValueError(f"a plan is at most {MAX_DEPTH} nodes deep")
        object.__setattr__(self, "depth", depth)

    @property
    def children(self) -> tuple[Any, ...]:
        return ()

    @property
    def place(self) -> Span:
        """The span of a node that was parsed."""
        assert self.span is not None
        return self.span


@dataclass(frozen=True, slots=True)
class Joined(Node):
    """Operands in a row. The constructor raises ValueError for one that has only one, or one of its own kind."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        if len(self.children) < 2:
            raise ValueError(f"{name} has two or more parts; one part is that part itself")
        if any(type(child) is type(self) for child in self.children):
            raise ValueError(f"{name} does not stand straight inside {name}: put its parts in its place")
        Node.__post_init__(self)


def join(kind: Callable[..., Any], operands: Sequence[Any], span: Span | None = None) -> Any:
    """`operands` under one `kind`, canonical: a single one is itself, those of the same kind are taken apart."""
    flat = [part for operand in operands for part in (operand.children if type(operand) is kind else (operand,))]
    return kind(tuple(flat), span=span) if len(flat) > 1 else flat[0]


def cover(nodes: Sequence[Any]) -> Span:
    """Where nodes stand, from the first to the last."""
    return nodes[0].place[0], nodes[-1].place[1]


def walk(node: Any) -> Iterator[Any]:
    """Every node, parents before children, left before right."""
    yield node
    for child in node.children:
        yield from walk(child)


def walk_up(node: Any) -> Iterator[Any]:
    """Every node, children before parents, left before right."""
    for child in node.children:
        yield from walk_up(child)
    yield node


def draw(
    node: Any, label: Callable[[Any], str], children: Callable[[Any], Iterable[Any]], first: str = "", rest: str = ""
) -> str:
    """Draws an indented tree, one node a line, behind `first` in the first line and `rest` in the others."""
    lines = [first + label(node)]
    below = list(children(node))
    for place, child in enumerate(below):
        branch, gap = ("└─ ", "   ") if place == len(below) - 1 else ("├─ ", "│  ")
        lines.append(draw(child, label, children, rest + branch, rest + gap))
    return "\n".join(lines)
