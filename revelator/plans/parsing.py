"""Tokens → tree, for bnf and logic alike: operands between a tight and a loose operator, groups, a sign in front of an
operand, and the operation that a group may end in.

It keeps its own stack, for a text nests deeper than Python recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_OPERAND, _OPERATOR = {"TEXT", "OPEN"}, {"TIGHT", "LOOSE", "ARROW", "CLOSE", "END"}
FOLLOWING = {  # what may stand behind each kind of token; a text begins as a group does
    **dict.fromkeys(("OPEN", "TIGHT", "LOOSE"), _OPERAND | {"NOT"}),
    **dict.fromkeys(("TEXT", "CLOSE"), _OPERATOR),
    "NOT": _OPERAND,
    "ARROW": {"OPERATION"},
    "OPERATION": {"CLOSE", "END"},
}
STRENGTH = {"OPEN": 0, "LOOSE": 1, "TIGHT": 2, "NOT": 3}


class Token(NamedTuple):
    """A mark or a text with its offsets; `kind` is a key of `FOLLOWING`, or END."""

    kind: str
    value: Any
    start: int
    end: int


@dataclass
class MisplacedError(Exception):
    """`token` cannot stand behind `before`, in the group that `opening` opens."""

    token: Token
    before: Token
    opening: Token | None


def parse_tokens(tokens: Sequence[Token], make: Mapping[str, Callable[..., Any]]) -> Any:
    """The tree of at least one token. `make` has a maker of nodes for each kind but ARROW and OPEN: of a TEXT, of the
    operands of LOOSE and TIGHT, of the operand of NOT, of what a CLOSE ends and of what an OPERATION is done with.

    Raises MisplacedError for the first token that cannot stand where it does, and what the makers raise.
    """
    before = Token("OPEN", "", 0, 0)
    nodes, waiting, opened = list[Any](), [before], list[Token]()
    for token in (*tokens, Token("END", "", tokens[-1].end, tokens[-1].end)):
        kind = token.kind
        if kind not in FOLLOWING[before.kind] or (kind in ("CLOSE", "END") and bool(opened) is (kind == "END")):
            raise MisplacedError(token, before, opened[-1] if opened else None)
        if kind == "TEXT":
            nodes.append(make[kind](token.value, span=(token.start, token.end)))
        elif kind in _OPERATOR or kind == "OPERATION":
            _join_operands(nodes, waiting, make, STRENGTH.get(kind, 0))
        if kind in STRENGTH:
            waiting.append(token)
        if kind == "OPEN":
            opened.append(token)
        elif kind == "CLOSE":
            waiting.pop()
            nodes[-1] = make[kind](nodes[-1], (opened.pop().start, token.end))
        elif kind == "OPERATION":
            nodes[-1] = make[kind](nodes[-1], token)
        if kind in ("TEXT", "CLOSE") and waiting[-1].kind == "NOT":
            nodes[-1] = make["NOT"](nodes[-1], span=(waiting.pop().start, nodes[-1].span[1]))
        before = token
    return nodes[0]


def _join_operands(nodes: list[Any], waiting: list[Token], make: Mapping[str, Callable[..., Any]], over: int) -> None:
    """Makes one node of the operands of each operator on top that is stronger than `over`."""
    while STRENGTH[kind := waiting[-1].kind] > over:
        count = 1
        while waiting[-1].kind == kind:
            waiting.pop()
            count += 1
        nodes[-count:] = [make[kind](nodes[-count:])]
