"""The decoder's grammar of logical queries, derived from `logic.lark`: what it allows parses and can be run.

Of what `check` reports the grammar keeps out terms without a word, and its `deepest` too many terms. That nothing or
everything matches (`"a" AND NOT "a"`) shows in the whole alone: such a query runs, and ranks nothing.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from revelator.plans.decoding import CONTROLS, Grammar, character_class, explicit
from revelator.plans.logic_check import MAX_TERMS

TERM = re.compile(r"^TERM: /(.*)/$", re.MULTILINE)


@cache
def logic_grammar() -> Grammar:
    """The grammar of logical queries, after the one space that a completion begins with.

    A term may begin with a space, as it is learnt (`render_spaced`). It has two quotes, and a level of a query costs at
    least one sign, so that the bound on both keeps to `MAX_TERMS` and to `MAX_DEPTH`.
    """
    file = files("revelator.plans").joinpath("logic.lark").read_text(encoding="utf-8")
    text = TERM.sub(lambda found: f"TERM: {_term(found[1])}", re.sub(r"\bstart\b", "query", file))
    closing = ('"', 'x"', '"x"', ' "x"')
    return Grammar(f'start: " " query\n{text}', closing, ")", "(", deepening='("', deepest=2 * MAX_TERMS - 8)


def _term(pattern: str) -> str:
    """The terminal on one line, without an escape that it does not need, its word one with a letter or a digit."""
    letters = character_class(r"[^\W_]")
    worded = explicit(pattern.replace(r"\w", f"[{letters}]")).replace('"', '" ?', 1)  # `render_spaced`
    return rf'/{worded}/ & /"([^"\\{CONTROLS}]|\\["\\])*"/'
