"""A tree for people: one node a line, numbered as `[i]` refers to it."""

from __future__ import annotations

import json

from revelator.plans.art_tree import Art, Call, Filter, Numbered, Relate, Search, numbered


def to_tree(art: Art) -> str:
    """Lines with branches; an operator stands behind its question as a call."""
    nodes = numbered(art)
    return "\n".join(_lines(nodes[0], nodes, "", ""))


def spelled(call: Call) -> str:
    """`Relate("UHF", "directed by")`; the inverse of a relation carries `^`, as in a SPARQL path."""
    match call:
        case Search(name, descriptor):
            arguments = [_quoted(name)] + ([_quoted(descriptor)] if descriptor else [])
        case Relate(head, to, inverse):
            arguments = [_quoted(head), ("^" if inverse else "") + _quoted(to)]
        case Filter(entities, condition):
            arguments = [f"[{', '.join(map(_quoted, entities))}]", _quoted(condition)]
    return f"{type(call).__name__}({', '.join(arguments)})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _lines(at: Numbered, nodes: tuple[Numbered, ...], first: str, rest: str) -> list[str]:
    mark = f"  {spelled(at.node.call)}" if at.node.call else "  [DR]" if at.node.is_direct else ""
    lines = [f"{first}{at.number} {at.node.question}{mark}"]
    for number in at.children:
        last = number == at.children[-1]
        lines += _lines(nodes[number], nodes, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))
    return lines
