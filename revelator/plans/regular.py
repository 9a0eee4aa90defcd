"""The part of the plan language that a regular expression holds: groups at most `depth` deep.

For servers that take a regular expression and no grammar of ours. What it matches parses, and checks by `scoped`, as
what `decoding.plan_grammar` lets through does, and for the same reason: a part is written in kinds, by whether it may
or must hold a placeholder. What is left out: deeper groups, texts written as JSON strings, words that begin with a
sign, placeholders inside parentheses and quotations of a text.
"""

from __future__ import annotations

from functools import cache

PLAIN = r"""[^\s\x00-\x1f\x7f-\x9f(){}"+*×\\]"""
NAME = r"[A-Za-z](?:[\w.'-]{0,30}\w)?"
WORD = f"{PLAIN}+"
FED = rf"{PLAIN}*\{{{NAME}\}}{PLAIN}*"  # a word with one placeholder
HELD = rf"\({WORD}(?: {WORD})*\){PLAIN}*"
QUOTATION = rf'"{WORD}(?: {WORD})*"{PLAIN}*'
LATER = f"(?:{WORD}|{HELD}|{QUOTATION})"
TEXTS = {
    "none": f"{WORD}(?: {LATER})*",
    "any": f"(?:{WORD}|{FED})(?: (?:{LATER}|{FED}))*",
    "some": f"(?:{FED}|{WORD}(?: {LATER})* {FED})(?: (?:{LATER}|{FED}))*",
}


@cache
def plan_expression(depth: int = 1) -> str:
    """Matches a plan from its first character to its last; Python and Rust read it alike."""
    return _list("none", depth)


def _list(kind: str, depth: int) -> str:
    after = "any" if kind == "some" else kind
    return rf"{_dependent(kind, depth)}(?: \+ {_dependent(after, depth)})*"


def _dependent(kind: str, depth: int) -> str:
    return rf"{_operand(kind, depth)}(?: \* {_operand('some', depth)})*"


def _operand(kind: str, depth: int) -> str:
    return rf"(?:{TEXTS[kind]}|\({_list(kind, depth - 1)}\))" if depth else f"(?:{TEXTS[kind]})"
