"""What a decoder of plans and logical queries is held to, as `bnf.decoder.lark` and `logic.lark` have it.

What `make_plan_grammar` allows parses, and checks by `scoped` but for the numbers of steps and what an operation can be
done with. Of the spellings that the parser reads, only those that `render` could write are left: ` * ` and not ` × `,
no escape of what needs none, no control characters. Depth and the limits of an executor are no part of it.

What `make_logic_grammar` allows parses and can be run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from string import Template

from revelator.plans.grammar import CONTROLS, Grammar, character_class, read_grammar_file
from revelator.plans.operations import CHOOSING, CONDITIONAL, EXTREMES, OPERATIONS, SIGNS

QUOTE = r'"\""'
ESCAPE = r'"\\" /["\\]/'  # a quote or a backslash in a text between quotes


@cache
def make_plan_grammar() -> Grammar:
    """The grammar of plans."""
    space = character_class(r"\s")
    inside = rf'/[^"\\{{}}{CONTROLS}]/'
    classes = {
        "word": character_class(r"\w"),
        "begin": character_class(r"[^\W\d]"),
        "first": rf'/[^{space}(){{}}"+*×={CONTROLS}]/',
        "rest": rf"/[^{space}(){{}}{CONTROLS}]/",
        "inside": inside,
        "escaped": rf'({inside} | "\\" /["\\bfnrt]/)',
        "plain": rf'/[^{space}(){{}}"+*×=⇒→><!{CONTROLS}]/',
    }
    names = {
        "operations": _list_words(name for name in OPERATIONS if name not in CHOOSING),
        "choices": _list_words(EXTREMES),
        "filters": _list_words(CONDITIONAL),
        "signs": _list_words(SIGNS),
    }
    return Grammar(tuple(_write_kinds(Template(read_grammar_file("bnf.decoder.lark")).substitute(classes | names))))


def _list_words(words: Iterable[str]) -> str:
    return " | ".join(map(json.dumps, words))


def _write_kinds(text: str) -> Iterator[tuple[str, str]]:
    for name, body in _read_rules(text):
        kinds = (("unfed", "NONE"), ("any", "ANY"), ("none", "NONE")) if name.endswith("_kind") else (("", ""),)
        for kind, held in kinds:
            yield name.replace("kind", kind), body.replace("_kind", f"_{kind}").replace("_KIND", f"_{held}")


def _read_rules(text: str) -> list[tuple[str, str]]:
    """The rules of a grammar file, each on one line, without comments and what their parts are called."""
    lines = re.sub(r"(?m)^//.*\n| *->.*$", "", text)
    return re.findall(r"(?m)^(\w+): (.*)", re.sub(r"\n +", " ", lines))


@cache
def make_logic_grammar() -> Grammar:
    """The grammar of logical queries.

    Of what `logic.check` reports the grammar keeps out terms without a word. Too many terms, and that nothing or
    everything matches (`"a" AND NOT "a"`), show in the whole alone. A term may begin with a space, as it is learnt
    (`render_spaced`).
    """
    file = re.sub(r"\bstart\b", "query", read_grammar_file("logic.lark"))
    space, letter = character_class(r"\s"), character_class(r"[^\W_]")
    texts = [
        ("TERM", f'{QUOTE} " "? VISIBLE* LETTER CHARACTER* {QUOTE}'),
        ("VISIBLE", rf'/[^{space}"\\{CONTROLS}]/'),
        ("LETTER", rf"/[{letter}]/"),
        ("CHARACTER", rf'/[^"\\{CONTROLS}]/ | {ESCAPE}'),
    ]
    return Grammar((*(rule for rule in _read_rules(file) if rule[0] != "TERM"), *texts))
