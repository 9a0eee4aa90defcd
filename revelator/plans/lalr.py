"""LALR parsing over tokens that this package reads itself, from a grammar file that a decoder reads too.

Lark reads the grammar and makes the table; the walk over it is our own, because Lark's, made for lexers, error recovery
and interactive use, took most of the time that a plan of a few tokens needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer
from lark.parsers.lalr_analysis import Shift

END = Token("$END", "")


class _Given(Lexer):
    """Lark wants a lexer; tokens are made before."""

    def __init__(self, _: object) -> None:
        pass

    def lex(self, data: list[Any]) -> list[Any]:  # type: ignore[override]
        return data


def lalr(grammar: str, builder: Transformer) -> Callable[[Sequence[Any]], Any]:
    """The parser of the grammar file of this name, from tokens (anything with a `type`) to what `builder` makes of the
    rule `start`. It raises UnexpectedToken, with `END` where a token is missing at the end."""
    text = files("revelator.plans").joinpath(grammar).read_text(encoding="utf-8")
    made: Any = Lark(text, parser="lalr", lexer=_Given, transformer=builder)
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
