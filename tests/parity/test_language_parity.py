"""The language's quick ways against the plain ones: Lark's own walk over its table, the regular expressions in full."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, Transformer, UnexpectedToken

from evaluation.metrics.plan_graph import read_sketch
from revelator.errors import ExpressionError
from revelator.limits import count_stages
from revelator.plans import bind, check, leaves, letters_key, parse, placeholders, substitute
from revelator.plans.binding import STOP, SUFFIX, _stems
from revelator.plans.bnf import _Builder as PlanBuilder
from revelator.plans.bnf import blank_placeholders
from revelator.plans.grammar import _TokensAsGiven, make_lalr_parser, read_grammar_file
from revelator.plans.lexer import tokenise
from revelator.plans.logic import _Builder as QueryBuilder
from revelator.plans.logic import _tokens

SIGNS = [*"+*×(){}", '"', "{x}", "{{x}}", "{a b}", "C++", "(1997 film)", "who", "born", '"a + b"']
PLANS = st.lists(st.sampled_from(SIGNS), max_size=14).map(" ".join)

QUERIES = st.lists(st.sampled_from(["AND", "OR", "NOT", "(", ")", '"a"', '"b c"']), max_size=12).map(" ".join)
GRAMMARS = {"bnf.lark": (PlanBuilder(), tokenise), "logic.lark": (QueryBuilder(), _tokens)}


def outcome(read: Any, found: list[Any]) -> Any:
    try:
        return read(found)
    except UnexpectedToken as error:
        return error.token.type, found.index(error.token) if error.token.type != "$END" else None
    except Exception as error:  # what a builder refuses
        return type(error), str(error)


def theirs(grammar: str, builder: Transformer) -> Any:
    return Lark(read_grammar_file(grammar), parser="lalr", lexer=_TokensAsGiven, transformer=builder).parse


WALKS = {
    name: (make_lalr_parser(name, builder), theirs(name, builder), read) for name, (builder, read) in GRAMMARS.items()
}


@pytest.mark.parametrize(("grammar", "texts"), [("bnf.lark", PLANS), ("logic.lark", QUERIES)])
def test_our_walk_over_the_table_ends_as_lark_s_does(grammar: str, texts: st.SearchStrategy[str]) -> None:
    ours, lark, read = WALKS[grammar]

    @settings(max_examples=400)
    @given(texts)
    def law(text: str) -> None:
        try:
            found = read(text)
        except ExpressionError:
            return
        if found:
            assert repr(outcome(ours, found)) == repr(outcome(lark, found))

    law()


BRACES = st.lists(st.sampled_from(["{", "{{", "}", "}}", "a", "b c", "{x}", "{y z}", " ", "{{w}}"]), max_size=9)


@given(BRACES.map("".join))
def test_placeholders_are_the_names_that_substitution_replaces(text: str) -> None:
    replaced: list[str] = []

    class Seen(dict[str, str]):
        def get(self, name: str, default: Any = None) -> str:
            replaced.append(name)
            return " "

    wiped = substitute(text, Seen())
    assert placeholders(text) == tuple(dict.fromkeys(replaced))
    assert re.findall(r"\w+", blank_placeholders(text)) == re.findall(r"\w+", wiped)


@given(st.lists(st.from_regex(r"[a-zé]{1,9}(ies|ing|ers?|ors?|ions?|ed|es|s|e|y)?", fullmatch=True), max_size=9))
def test_stems_word_by_word_are_those_of_the_joined_text(words: list[str]) -> None:
    joined = re.sub(SUFFIX.pattern.replace("$", "(?= |$)"), "", " ".join(w for w in words if w not in STOP))
    assert _stems(words) == frozenset(joined.split())


@settings(max_examples=300)
@given(PLANS)
def test_what_scores_look_at_is_what_the_plan_itself_says(text: str) -> None:
    try:
        plan = parse(text)
    except ExpressionError:
        with pytest.raises(ExpressionError):
            read_sketch(text)
        return
    found, valid = read_sketch(text), not check(plan)
    assert (found.valid, found.letters, found.depth) == (valid, letters_key(plan), count_stages(plan))
    assert found.texts == tuple(leaf.text for leaf in leaves(plan)) and found.leaves == len(found.texts)
    edges = {(p, c) for c, fed in enumerate(bind(plan).sources) for p in fed.values()}
    assert found.edges == (edges if valid else frozenset())
