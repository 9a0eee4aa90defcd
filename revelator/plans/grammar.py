"""Grammars: the files that a parser and a decoder both read, and what a decoder is held to."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Transformer
from lark.lexer import Lexer

from revelator.plans.lexer import MAX_DEPTH

CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # inside a character class: what ends a line or cannot be seen


@dataclass(frozen=True)
class Grammar:
    """What a decoder is held to, and what it needs to end in time.

    `text` is in llguidance's dialect of Lark. `closing` are the pieces that end an output early, tried from the left;
    `brackets` are the ones among them that may be repeated, one for each of the `opening` signs written. An output is
    closed when it holds `deepest` signs of `deepening`.
    """

    text: str
    closing: tuple[str, ...]
    brackets: str
    opening: str
    deepening: str = ""
    deepest: int = MAX_DEPTH - 50


def structured_outputs(grammar: Grammar) -> dict[str, Any]:
    """The same grammar as fields of a request to vLLM 0.12 or later, served with
    `--structured-outputs-config.backend guidance`: `extra_body=` of an OpenAI client."""
    return {"structured_outputs": {"grammar": grammar.text}}


@cache
def grammar_text(file: str) -> str:
    """A grammar file of this package: `bnf.lark`, `logic.lark` or `art.schema.json`."""
    return files("revelator.plans").joinpath(file).read_text(encoding="utf-8")


class _TokensAsGiven(Lexer):
    """Lark wants a lexer; the languages make their tokens themselves."""

    def __init__(self, _: object) -> None:
        pass

    def lex(self, data: list[Any]) -> list[Any]:  # type: ignore[override]
        return data


def lalr_parser(file: str, builder: Transformer) -> Callable[[Sequence[Any]], Any]:
    """The parser of a grammar file, from tokens (anything with a `type`) to what `builder` makes of the rule `start`.

    It raises UnexpectedToken, of type `$END` where a token is missing at the end."""
    lark: Any = Lark(grammar_text(file), parser="lalr", lexer=_TokensAsGiven, transformer=builder)
    return lark.parse


def explicit(pattern: str) -> str:
    r"""The pattern with `\s` and `\w` as Python understands them, which is not how Rust does."""
    words, spaces = character_class(r"\w"), character_class(r"\s")
    inside = re.sub(r"\[[^]]*\]", lambda m: m[0].replace(r"\w", words).replace(r"\s", spaces), pattern)
    return inside.replace(r"\w", f"[{words}]")


@cache
def character_class(kind: str) -> str:
    """The characters of `kind`, in all of Unicode, as the inside of a character class."""
    runs = re.finditer(f"{kind}+", "".join(map(chr, range(sys.maxunicode + 1))))
    return "".join(rf"\u{{{ord(run[0][0]):x}}}-\u{{{ord(run[0][-1]):x}}}" for run in runs)
