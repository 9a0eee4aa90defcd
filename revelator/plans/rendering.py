"""`Expression` → canonical text: operands joined by ` * ` and ` + `, groups in parentheses, quotes where needed."""

from __future__ import annotations

import json
import re

from revelator.plans.expression import Atomic, Dependent, Expression, Sequence
from revelator.plans.lexer import reads_as_itself

_RAW = re.compile("[\x7f-\x9f\u2028\u2029]")  # what JSON leaves as it is though it may break a line


def render(expression: Expression) -> str:
    """The one text that parses into `expression`; a single line whatever the texts hold."""
    pieces: list[str] = []
    stack: list[Expression | str] = [expression]
    while stack:
        node = stack.pop()
        if type(node) is str:
            pieces.append(node)
        elif type(node) is Atomic:
            pieces.append(quote(node.text))
        elif type(node) is Dependent:
            left = _grouped(node.left, type(node.left) is Sequence)
            right = _grouped(node.right, type(node.right) is not Atomic)
            stack += reversed([*left, " * ", *right])
        elif type(node) is Sequence:
            joined = [part for item in node.items for part in (" + ", item)][1:]
            stack += reversed(joined)
    return "".join(pieces)


def _grouped(node: Expression, needed: bool) -> list[Expression | str]:
    return ["(", node, ")"] if needed else [node]


def quote(text: str) -> str:
    """The text of a leaf as it stands in an expression: itself, or a JSON string where it would read otherwise."""
    if reads_as_itself(text) and not _RAW.search(text):
        return text
    return json_text(text)


def json_text(text: str) -> str:
    """A JSON string on one line."""
    return _RAW.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False))
