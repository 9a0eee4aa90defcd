"""Pictures of a plan: an indented tree, JSON, and letters for its shape alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from revelator.plans import trees
from revelator.plans.binding import bind
from revelator.plans.bnf import Atomic, Dependent, Expression, Sequence, render

SCHEMA_VERSION = 1


def letter(index: int) -> str:
    """Names leaf `index`: A … Z, then A1 … Z1, A2 …"""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def to_letters(expression: Expression) -> str:
    """Writes the shape of a plan, a letter for each leaf from left to right: `A * (B + C)`."""
    return render(_relabel(expression, map(letter, count())))


def make_letters_key(expression: Expression) -> str:
    """Returns a key of the shape up to the order of `+`: equal for two plans if and only if their shapes are."""
    if type(expression) is Atomic:
        return "a"
    keys = [make_letters_key(child) for child in expression.children]
    return f"({'*'.join(keys) if type(expression) is Dependent else '+'.join(sorted(keys))})"


def _relabel(node: Expression, names: Iterator[str]) -> Expression:
    if type(node) is Atomic:
        return Atomic(next(names))
    parts = [_relabel(child, names) for child in node.children]
    return Dependent(parts[0], parts[1]) if type(node) is Dependent else Sequence(tuple(parts))


LABELS = {Dependent: "*  in order", Sequence: "+  in parallel"}


def draw_tree(expression: Expression) -> str:
    """Draws an indented tree, one node a line. A leaf shows its letter, its text and the sources of its
    placeholders."""
    places = enumerate(bind(expression).sources)

    def label(node: Expression) -> str:
        if type(node) is not Atomic:
            return LABELS[type(node)]
        index, sources = next(places)
        origin = ", ".join(f"{{{name}}} from {letter(source)}" for name, source in sources.items())
        return f"{letter(index)}  {render(node)}" + (f"   [{origin}]" if origin else "")

    return trees.draw(expression, label, stages)


def stages(node: Expression) -> tuple[Expression, ...]:
    """Lists the operands of a node; a chain `a * b * c` has three stages."""
    if type(node) is Dependent and type(node.left) is Dependent:
        return (*stages(node.left), node.right)
    return node.children


def to_json(expression: Expression) -> dict[str, Any]:
    """Converts the plan to plain values; docs/plans.md gives the schema."""
    sources = bind(expression).sources
    return {
        "schema": SCHEMA_VERSION,
        "canonical": render(expression),
        "letters": to_letters(expression),
        "leaves": len(sources),
        "root": _node_to_json(expression, enumerate(sources)),
    }


def _node_to_json(node: Expression, places: Iterator[tuple[int, Mapping[str, int]]]) -> dict[str, Any]:
    span = list(node.span) if node.span else None
    if type(node) is Atomic:
        index, sources = next(places)
        return {
            "kind": "atomic",
            "span": span,
            "leaf": index,
            "letter": letter(index),
            "text": node.text,
            "placeholders": [{"name": name, "source": sources.get(name)} for name in node.placeholders],
        }
    parts = [_node_to_json(child, places) for child in node.children]
    if type(node) is Dependent:
        return {"kind": "dependent", "span": span, "left": parts[0], "right": parts[1]}
    return {"kind": "sequence", "span": span, "items": parts}
