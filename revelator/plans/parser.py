"""Text → `Expression`: the tokens of `lexer`, Lark's LALR parser, and the grammar file."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from functools import cache

from lark import Transformer, UnexpectedToken

from revelator.errors import ExpressionError
from revelator.plans.expression import MAX_DEPTH, Atomic, Dependent, Expression, Sequence, Span
from revelator.plans.faults import fault
from revelator.plans.lalr import lalr
from revelator.plans.lexer import Token, tokens

MAX_CHARACTERS = 1_000_000


def parse(text: str) -> Expression:
    """The plan that `text` spells, with spans. Raises ExpressionError; takes time linear in the length of `text`."""
    if len(text) >= MAX_CHARACTERS:
        message = f"an expression is shorter than {MAX_CHARACTERS:,} characters; this one is not"
        raise fault(text, "too-long", message, 0, len(text), "split it into several expressions")
    found = tokens(text)
    if not found:
        raise fault(text, "empty", "there is no question here", 0, len(text), 'write one; an empty text is ""')
    try:
        return _parser()(found)[0]
    except UnexpectedToken as error:
        raise _misplaced(text, found, error.token) from None
    except _UnusableError as error:
        raise fault(text, error.code, error.message, *error.span, error.hint) from None


class _UnusableError(Exception):
    """A part that fits the grammar and still cannot be built."""

    def __init__(self, code: str, message: str, span: Span, hint: str) -> None:
        self.code, self.message, self.span, self.hint = code, message, span, hint


Part = tuple[Expression, int, int]  # a node, and where it starts and ends with the parentheses around it


class _Builder(Transformer):
    """One method a rule of the grammar."""

    def word(self, parts: list[Token]) -> Token:
        return parts[0]

    def text(self, parts: list[Token]) -> Part:
        token = parts[0]
        start, end = token.start_pos, token.end_pos
        return Atomic(token.value, (start, end)), start, end

    def quoted(self, parts: list[Token]) -> Part:
        token = parts[0]
        start, end = token.start_pos, token.end_pos
        try:
            return Atomic(json.loads(token.value, strict=False), (start, end)), start, end
        except json.JSONDecodeError as error:
            at = min(start + error.pos, end - 1)
            hint = r"a quoted text is a JSON string: write a backslash as \\, a quote as \", a line break as \n"
            raise _UnusableError("bad-escape", "this escape has no meaning", (at, at + 1), hint) from None

    def group(self, parts: list) -> Part:
        opening, (node, _, _), closing = parts
        start, end = opening.start_pos, closing.end_pos
        object.__setattr__(node, "span", (start, end))  # the node is new and ours alone
        return node, start, end

    def dependent(self, parts: list) -> Part:
        left, start, end = parts[0]
        for right, _, end in parts[2::2]:
            if left.depth >= MAX_DEPTH or right.depth >= MAX_DEPTH:
                raise _too_deep(start, end)
            left = Dependent(left, right, (start, end))
        return left, start, end

    def start(self, parts: list) -> Part:
        if len(parts) == 1:
            return parts[0]
        start, end = parts[0][1], parts[-1][2]
        items: list[Expression] = []
        for node, _, _ in parts[::2]:
            items.extend(node.items if type(node) is Sequence else (node,))
        if max(item.depth for item in items) >= MAX_DEPTH:
            raise _too_deep(start, end)
        return Sequence(tuple(items), (start, end)), start, end


def _too_deep(start: int, end: int) -> _UnusableError:
    hint = "join steps that do not need one another with +"
    return _UnusableError("too-deep", f"a plan is at most {MAX_DEPTH} nodes deep", (start, end), hint)


@cache
def _parser() -> Callable[[Tokens[Token]], Part]:
    return lalr("bnf.lark", _Builder())


def _misplaced(text: str, found: list[Token], token: Token) -> ExpressionError:
    """An operand is missing before `token`."""
    index = len(found) if token.type == "$END" else next(i for i, t in enumerate(found) if t is token)
    before = found[index - 1] if index else token
    if before.type == "OPEN" and token.type == "CLOSE":
        hint = "write a question in it, or quote the text"
        return fault(text, "empty-group", "there is nothing in this group", before.start_pos, token.end_pos, hint)
    side, operator = ("before", token) if token.type in ("PLUS", "TIMES") else ("after", before)
    message = f"there is no question {side} this {operator.value}"
    hint = f'write one, remove the {operator.value}, or quote the text: "a {operator.value} b"'
    return fault(text, "dangling-operator", message, operator.start_pos, operator.end_pos, hint)
