"""Grammars: the files that both the parser and the decoder read, and the constraint of a decoder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer
from lark.parsers.lalr_analysis import Shift

from revelator.plans.lexer import MAX_DEPTH

END = Token("$END", "")
CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # inside a character class: what ends a line or cannot be seen


@dataclass(frozen=True)
class Grammar:
    """The constraint of a decoder, and what it needs to end in time.

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
    """Writes the grammar as fields of a request to vLLM 0.12 or later, served with
    `--structured-outputs-config.backend guidance`: `extra_body=` of an OpenAI client."""
    return {"structured_outputs": {"grammar": grammar.text}}


@cache
def read_grammar_file(file: str) -> str:
    """Reads a grammar file of this package: `bnf.lark`, `logic.lark` or `art.schema.json`."""
    return files("revelator.plans").joinpath(file).read_text(encoding="utf-8")


class _TokensAsGiven(Lexer):
    """Lark wants a lexer; the languages make their tokens themselves."""

    def __init__(self, _: object) -> None:
        pass

    def lex(self, data: list[Any]) -> list[Any]:  # type: ignore[override]
        return data


def make_lalr_parser(file: str, builder: Transformer) -> Callable[[Sequence[Any]], Any]:
    """The parser of a grammar file, from tokens (anything with a `type`) to what `builder` makes of the rule `start`.

    It raises UnexpectedToken, with `END` where a token is missing at the end. Lark reads the grammar and makes the
    table. The walk over the table is our own: a plan of four leaves is parsed in 25 µs and not in 39
    (`benchmarks/language.py`), because Lark's walk also serves lexers, error recovery and interactive use.
    """
    made: Any = Lark(read_grammar_file(file), parser="lalr", lexer=_TokensAsGiven, transformer=builder)
    parser = made.parser.parser.parser
    table, build = parser.parse_table, parser.callbacks
    actions: dict[int, dict[str, Any]] = {  # by state and symbol: the next state, or (how many parts, of what, to what)
        state: {
            str(symbol): arg if action is Shift else (len(arg.expansion), build[arg], str(arg.origin.name))
            for symbol, (action, arg) in row.items()
        }
        for state, row in table.states.items()
    }
    first, last = table.start_states["start"], table.end_states["start"]

    def parse(tokens: Sequence[Any]) -> Any:
        states: list[int] = [first]
        values: list[Any] = []
        for token in (*tokens, END):
            kind = token.type
            while type(step := actions[states[-1]].get(kind)) is tuple:
                size, make, name = step
                parts = values[-size:] if size else []
                if size:
                    del states[-size:], values[-size:]
                state = actions[states[-1]][name]
                states.append(state)
                values.append(make(parts))
                if state == last and token is END:
                    return values[0]
            if step is None:
                raise UnexpectedToken(token, set(filter(str.isupper, actions[states[-1]])))
            states.append(step)
            values.append(token)
        raise AssertionError("the end is never shifted")

    return parse


def expand_classes(pattern: str) -> str:
    r"""Writes out `\s` and `\w` as Python understands them; Rust understands them differently."""
    words, spaces = character_class(r"\w"), character_class(r"\s")
    inside = re.sub(r"\[[^]]*\]", lambda m: m[0].replace(r"\w", words).replace(r"\s", spaces), pattern)
    return inside.replace(r"\w", f"[{words}]")


@cache
def character_class(kind: str) -> str:
    """Lists the characters of `kind` in all of Unicode, as the inside of a character class."""
    runs = re.finditer(f"{kind}+", "".join(map(chr, range(sys.maxunicode + 1))))
    return "".join(rf"\u{{{ord(run[0][0]):x}}}-\u{{{ord(run[0][-1]):x}}}" for run in runs)
