"""What the trees of all plan languages share. A node of any of them has `children`, left to right; a leaf has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_DEPTH = 200  # nodes from the root to the deepest leaf: every walk may recurse; gold plans of public sets have 4


def walk(node: Any) -> Iterator[Any]:
    """Every node, parents before children, left before right."""
    yield node
    for child in node.children:
        yield from walk(child)


def measure_depth(children: Iterable[Any]) -> int:
    """The depth of a node over these children. Raises ValueError beyond `MAX_DEPTH`."""
    depth = 1 + max(child.depth for child in children)
    if depth > MAX_DEPTH:
        raise ValueError(f"a plan is at most {MAX_DEPTH} nodes deep")
    return depth


def draw(node: Any, label: Callable[[Any], str], children: Callable[[Any], Iterable[Any]]) -> str:
    """Draws an indented tree, one node a line."""
    return "\n".join(_draw_lines(node, label, children, "", ""))


def _draw_lines(node: Any, label: Any, children: Any, first: str, rest: str) -> Iterator[str]:
    yield first + label(node)
    below = list(children(node))
    for place, child in enumerate(below):
        branch, gap = ("└─ ", "   ") if place == len(below) - 1 else ("├─ ", "│  ")
        yield from _draw_lines(child, label, children, rest + branch, rest + gap)
