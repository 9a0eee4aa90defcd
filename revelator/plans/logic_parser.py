"""Text → logical query: a scan for tokens, Lark's LALR parser, and the grammar file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from lark import Token, Transformer, UnexpectedToken

from revelator.errors import ExpressionError
from revelator.plans.expression import MAX_DEPTH, Span
from revelator.plans.faults import fault
from revelator.plans.lalr import lalr
from revelator.plans.logic_expression import And, Not, Or, Query, Term, joined

MAX_CHARACTERS = 100_000
_TOKEN = re.compile(
    r"""(?P<TERM>"(?:[^"\\]|\\.)*+")|(?P<OPEN>\()|(?P<CLOSE>\))|(?P<WORD>[^\s()"]+)|(?P<UNCLOSED>")""", re.DOTALL
)
_WORDS = frozenset({"AND", "OR", "NOT"})
_EXAMPLE = 'write it like "a" AND ("b" OR NOT "c")'


def parse(text: str) -> Query:
    """The query that `text` spells, with spans. Raises ExpressionError; takes time linear in the length of `text`."""
    if len(text) > MAX_CHARACTERS:
        message = f"a logical query has at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}"
        raise fault(text, "too-long", message, 0, len(text), "shorten its terms")
    found = _tokens(text)
    if not found:
        raise fault(text, "empty", "there is no term here", 0, len(text), _EXAMPLE)
    try:
        return _parser()(found)
    except UnexpectedToken as error:
        raise _misplaced(text, found, error.token) from None
    except ValueError:
        raise _too_deep(text) from None


def _too_deep(text: str) -> ExpressionError:
    message = f"groups and negations are nested more than {MAX_DEPTH} deep"
    return fault(text, "too-deep", message, 0, len(text), "remove parentheses and NOTs that change nothing")


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind, value, (start, end) = str(match.lastgroup), match[0], match.span()
        if kind == "UNCLOSED":
            raise fault(text, "open-quote", "this quote is never closed", start, end, 'close the term with "')
        if kind == "WORD":
            if value not in _WORDS:
                raise _unquoted(text, value, start, end)
            kind = value
        if kind == "TERM":
            value = _content(text, start, end)
        found.append(Token(kind, value, start_pos=start, end_pos=end))
    return found


def _unquoted(text: str, value: str, start: int, end: int) -> ExpressionError:
    if value.upper() in _WORDS:
        hint = f"write {value.upper()}, or quote the word as a term"
        return fault(text, "lower-case", "operators are written in capitals", start, end, hint)
    return fault(text, "unquoted", "a term stands in straight double quotes", start, end, _EXAMPLE)


def _content(text: str, start: int, end: int) -> str:
    try:
        return json.loads(text[start:end], strict=False)
    except json.JSONDecodeError as error:
        at = min(start + error.pos, end - 1)
        hint = r"a term is a JSON string: write a backslash as \\, a quote as \", a line break as \n"
        raise fault(text, "bad-escape", "this escape has no meaning", at, at + 1, hint) from None


class _Builder(Transformer):
    """One method a rule of the grammar."""

    def term(self, parts: list[Token]) -> Query:
        return Term(str(parts[0]), _place(parts[0]))

    def group(self, parts: list[Any]) -> Query:
        return parts[1]

    def negation(self, parts: list[Any]) -> Query:
        sign, operand = parts
        return Not(operand, (sign.start_pos, operand.span[1]))

    def literal(self, parts: list[Query]) -> Query:
        return parts[0]

    def conjunction(self, parts: list[Any]) -> Query:
        return _join(And, parts[::2])

    def start(self, parts: list[Any]) -> Query:
        return _join(Or, parts[::2])


def _join(kind: type[And] | type[Or], operands: list[Any]) -> Query:
    return operands[0] if len(operands) == 1 else joined(kind, operands, (operands[0].span[0], operands[-1].span[1]))


def _place(token: Token) -> Span:
    assert token.start_pos is not None and token.end_pos is not None
    return token.start_pos, token.end_pos


@cache
def _parser() -> Callable[[Sequence[Token]], Query]:
    return lalr("logic.lark", _Builder())


def _misplaced(text: str, found: list[Token], token: Token) -> ExpressionError:
    if token.type == "$END":
        start, end = _place(found[-1])
        opened = [t for t in found if t.type == "OPEN"]
        if found[-1].type in ("TERM", "CLOSE") and opened:
            start, end = _place(opened[-1])
            return fault(text, "open-group", "this parenthesis is never closed", start, end, "close it with )")
        return fault(text, "no-operand", f"no term stands after this {found[-1].value}", start, end, _EXAMPLE)
    start, end = _place(token)
    if token.type in ("TERM", "OPEN", "NOT"):
        message = "AND or OR is missing before this" if token.type != "NOT" else "NOT cannot stand here"
        hint = "join terms with AND or OR; negate a negation as NOT (NOT …)"
        return fault(text, "no-operator", message, start, end, hint)
    if (
        token.type == "CLOSE"
        and sum((t.type == "OPEN") - (t.type == "CLOSE") for t in found[: found.index(token)]) <= 0
    ):
        return fault(text, "no-group", "this parenthesis was never opened", start, end, "remove it, or open it with (")
    return fault(text, "no-operand", f"no term stands before this {token.value}", start, end, _EXAMPLE)
