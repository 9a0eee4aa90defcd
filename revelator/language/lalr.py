"""Lark's LALR parser over tokens that this package reads itself, from a grammar file that a decoder reads too."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from lark import Lark, Transformer
from lark.lexer import Lexer


class _Given(Lexer):
    """Hands on tokens that were made before."""

    def __init__(self, _: object) -> None:
        pass

    def lex(self, data: list[Any]) -> list[Any]:  # type: ignore[override]
        return data


def lalr(grammar: str, builder: Transformer) -> Lark:
    """The parser of the grammar file of this name; `parse` takes a list of tokens, and `builder` makes the result."""
    text = files("revelator.language").joinpath(grammar).read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer=_Given, transformer=builder)
