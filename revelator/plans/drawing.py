"""Pictures of a plan: an indented tree, JSON, and letters for its shape alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from revelator.plans import trees
from revelator.plans.binding import bind, spell_by_numbers, spell_number
from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Operation,
    Sequence,
    list_leaves,
    list_steps,
    read_reference,
    render,
    rewrite,
    spell_operation,
)

SCHEMA_VERSION = 2


def letter(index: int) -> str:
    """Names step `index`: A … Z, then A1 … Z1, A2 …"""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def to_letters(expression: Expression) -> str:
    """Writes the shape of a plan, a letter for each leaf from left to right: `A * (B + C)`. An operation is spelled
    out, and takes a letter that no leaf has."""
    return render(rewrite(expression, lambda leaf, index: letter(index)))


def make_letters_key(expression: Expression) -> str:
    """Returns a key of the shape up to the order of `+`: equal for two plans if and only if their shapes are."""
    if type(expression) is Atomic:
        return "a"
    keys = [make_letters_key(child) for child in expression.children]
    if type(expression) is Operation:
        return f"({keys[0]}=>{expression.name})"
    return f"({'*'.join(keys) if type(expression) is Dependent else '+'.join(sorted(keys))})"


LABELS = {Dependent: "*  in order", Sequence: "+  in parallel"}


def draw_tree(expression: Expression) -> str:
    """Draws an indented tree, one node a line. A step shows its number and its text, a leaf also what its names stand
    for."""
    places = {id(step): place for place, step in enumerate(list_steps(expression))}
    steps = bind(expression).steps

    def label(node: Expression) -> str:
        if type(node) is Operation:
            return f"{places[id(node)] + 1}  => {spell_operation(node)}"
        if type(node) is not Atomic:
            return LABELS[type(node)]
        index = places[id(node)]
        named = [name for name in steps[index].sources if not read_reference(name)]
        origin = ", ".join(f"{{{name}}} is {spell_number(name, steps[index])}" for name in named)
        return f"{index + 1}  {render(node)}" + (f"   [{origin}]" if origin else "")

    return trees.draw(expression, label, stages)


def stages(node: Expression) -> tuple[Expression, ...]:
    """Lists the operands of a node; a chain `a * b * c` has three stages."""
    if type(node) is Dependent and type(node.left) is Dependent:
        return (*stages(node.left), node.right)
    return node.children


def to_json(expression: Expression) -> dict[str, Any]:
    """Converts the plan to plain values."""
    sources = bind(expression).sources
    return {
        "schema": SCHEMA_VERSION,
        "canonical": render(expression),
        "numbered": render(spell_by_numbers(expression)),
        "letters": to_letters(expression),
        "leaves": len(list_leaves(expression)),
        "root": _node_to_json(expression, enumerate(sources)),
    }


def _node_to_json(node: Expression, places: Iterator[tuple[int, Mapping[str, int]]]) -> dict[str, Any]:
    parts = [_node_to_json(child, places) for child in node.children]
    found: dict[str, Any] = {"kind": type(node).__name__.lower(), "span": list(node.span) if node.span else None}
    if type(node) is Dependent:
        return found | {"left": parts[0], "right": parts[1]}
    if type(node) is Sequence:
        return found | {"items": parts}
    index, sources = next(places)
    found["step"] = index + 1
    if type(node) is Operation:
        condition = node.condition and asdict(node.condition)
        named = {"name": node.name, "references": list(node.references), "condition": condition}
        return found | named | {"operand": parts[0]}
    assert type(node) is Atomic
    numbers = {name: step + 1 for name, step in sources.items()}
    placeholders = [{"name": name, "source": numbers.get(name)} for name in node.placeholders]
    return found | {"letter": letter(index), "text": node.text, "placeholders": placeholders}
