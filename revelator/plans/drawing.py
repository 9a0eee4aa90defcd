"""Pictures of a plan: an indented tree, JSON, a Mermaid flowchart, and letters for its shape alone."""

from __future__ import annotations

from typing import Any

from revelator.plans.binding import bind
from revelator.plans.bnf import Atomic, Dependent, Expression, Sequence, children, leaves, render

SCHEMA_VERSION = 1


def letter(index: int) -> str:
    """Names leaf `index`: A … Z, then A1 … Z1, A2 …"""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index % 26] + (str(index // 26) if index >= 26 else "")


def to_letters(expression: Expression) -> str:
    """Writes the shape of a plan, a letter for each leaf from left to right: `A * (B + C)`."""
    names = iter(range(len(leaves(expression))))
    return render(_relabel(expression, lambda: letter(next(names))))


def letters_key(expression: Expression) -> str:
    """Returns a key of the shape up to the order of `+`: equal for two plans if and only if their shapes are."""
    return _key(expression)


def _key(node: Expression) -> str:
    if type(node) is Atomic:
        return "a"
    if type(node) is Dependent:
        return f"({_key(node.left)}*{_key(node.right)})"
    return f"({'+'.join(sorted(_key(item) for item in children(node)))})"


def _relabel(node: Expression, name: Any) -> Expression:
    if type(node) is Atomic:
        return Atomic(name())
    if type(node) is Dependent:
        left = _relabel(node.left, name)
        return Dependent(left, _relabel(node.right, name))
    return Sequence(tuple([_relabel(item, name) for item in children(node)]))


LABELS = {Dependent: "*  in order", Sequence: "+  in parallel"}


def draw_tree(expression: Expression) -> str:
    """Draws an indented tree, one node a line. A leaf shows its letter, its text and the sources of its
    placeholders."""
    sources = bind(expression).sources
    lines: list[str] = []
    stack: list[tuple[Expression, str, str]] = [(expression, "", "")]
    index = 0
    while stack:
        node, first, rest = stack.pop()
        if type(node) is Atomic:
            origin = ", ".join(f"{{{name}}} from {letter(i)}" for name, i in sources[index].items())
            lines.append(f"{first}{letter(index)}  {render(node)}" + (f"   [{origin}]" if origin else ""))
            index += 1
            continue
        lines.append(first + LABELS[type(node)])
        below = stages(node)
        for place, child in reversed(list(enumerate(below))):
            last = place == len(below) - 1
            stack.append((child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")))
    return "\n".join(lines)


def stages(node: Expression) -> list[Expression]:
    """Lists the operands of a node; a chain `a * b * c` has three stages."""
    if type(node) is not Dependent:
        return list(children(node))
    found = []
    spine: Expression = node
    while type(spine) is Dependent:
        found.append(spine.right)
        spine = spine.left
    return [spine, *reversed(found)]


def to_json(expression: Expression) -> dict[str, Any]:
    """Converts the plan to plain values; docs/plans.md gives the schema."""
    sources = bind(expression).sources
    count = iter(range(len(sources)))
    return {
        "schema": SCHEMA_VERSION,
        "canonical": render(expression),
        "letters": to_letters(expression),
        "leaves": len(sources),
        "root": _json(expression, sources, count),
    }


def _json(node: Expression, sources: Any, count: Any) -> dict[str, Any]:
    span = list(node.span) if node.span else None
    if type(node) is Atomic:
        index = next(count)
        bindings = dict(sources[index])
        return {
            "kind": "atomic",
            "span": span,
            "leaf": index,
            "letter": letter(index),
            "text": node.text,
            "placeholders": [{"name": name, "source": bindings.get(name)} for name in node.placeholders],
        }
    if type(node) is Dependent:
        left = _json(node.left, sources, count)
        return {"kind": "dependent", "span": span, "left": left, "right": _json(node.right, sources, count)}
    items = [_json(item, sources, count) for item in children(node)]
    return {"kind": "sequence", "span": span, "items": items}


def to_mermaid(expression: Expression) -> str:
    """Draws a Mermaid flowchart: a box for each leaf, and an arrow for each placeholder, labelled with its name."""
    lines = ["flowchart TD"]
    for index, leaf in enumerate(leaves(expression)):
        lines.append(f'    {letter(index)}["{letter(index)}: {_escape(leaf.text)}"]')
    for index, inputs in enumerate(bind(expression).sources):
        for name, source in inputs.items():
            lines.append(f'    {letter(source)} -->|"{_escape(name)}"| {letter(index)}')
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Escapes text for Mermaid: signs with a meaning become character entities."""
    return "".join(c if c.isalnum() or c in " ,.?!':()-" else f"#{ord(c)};" for c in " ".join(text.split()))
