"""The decoder's grammar of trees, as automata that know nothing of the parser read it: ours, and that of vLLM."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from llguidance import LLMatcher, LLTokenizer

from revelator.plans.art import Art, check, number_nodes, parse, render
from revelator.plans.decoding import make_art_grammar
from revelator.plans.operators import Filter, Relate, Search
from tests.revelator.plans import vllm_automaton

A, B = Art("Who is it?", Search("Ada")), Art("Which films did [1] direct?", Relate("[1]", "directed by", True))
C, D = Art("Which of [2] came out?", Filter(("[2]", "UHF"), "out [1]")), Art("How many are in [3]?")


ENDS = ['", "direct": true}', '", "operation": "equal"}', '", "search": {"name": "', '"}}', ", ", "]}"]
PIECES = ['{"question": "', "a", "[1]", "[2]", *ENDS]
FIRST = '{"question": "a", "children": [{"question": "a", "search": {"name": "a"}}, '
LAST = ['{"question": "', "a", '", "search": {"name": "', "a", '"}}', *["]}"] * 3]  # those that fit end any walk


def root(*children: Art) -> Art:
    return Art('What is the "é" \\ 𠮷?', children=children)


@pytest.fixture(scope="module")
def start() -> LLMatcher:
    """Past the space that an output begins with."""
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, make_art_grammar().text)
    assert not matcher.is_error() and matcher.consume_tokens(tokenizer.tokenize_str(" "))
    return matcher


def accepts(start: LLMatcher, text: str) -> bool:
    """Both say the same."""
    matcher = start.deep_copy()
    accepted = matcher.consume_tokens(LLTokenizer("byte").tokenize_str(text)) and matcher.is_accepting()
    assert vllm_automaton.accepts(make_art_grammar().ebnf, text) == accepted
    return accepted


@pytest.mark.parametrize(
    "tree",
    [
        A,
        Art("Is it so?"),
        Art("a?", Search("b", "c")),
        root(A),
        root(A, B, C, D),
        root(A, root(root(B), B), Art("[1] or [2]?"), C),
        root(*[A] * 12, Art("Which of [1], [9]?")),
    ],
)
def test_a_tree_that_checks_can_be_written(start: LLMatcher, tree: Art) -> None:
    assert check(tree) == ()
    assert accepts(start, render(tree))


@pytest.mark.parametrize(
    "tree",
    [
        root(A, B).children[1],  # the root names a node
        root(B),  # a node names itself
        root(A, C),
        root(A, Art("How many are in [2]?")),
        root(A, Art("How many?")),
        root(Art("How many?"), A),
        root(root(A, B), A),  # [1] is what it stands in
        root(A, replace(A, call=Search("[7]"))),
    ],
)
def test_a_tree_that_does_not_check_cannot_be_written(start: LLMatcher, tree: Art) -> None:
    assert check(tree) != ()
    assert not accepts(start, render(tree))


@pytest.mark.parametrize(
    "text",
    [
        '{"question": "a"}',
        '{"search": {"name": "a"}, "question": "b"}',
        '{"question": " ", "direct": true}',
        '{"question": "\u3000", "direct": true}',
        r'{"question": "\u001c", "direct": true}',
        '{"question": "a", "direct": false}',
        '{"question": "a", "children": []}',
        '{"question":"a","direct":true}',
        render(root(root(root(root(A))))),
    ],
)
def test_what_is_no_tree_or_spelt_otherwise_or_too_deep_cannot_be_written(start: LLMatcher, text: str) -> None:
    assert not accepts(start, text)


def test_every_complete_text_of_random_walks_checks(start: LLMatcher) -> None:
    draw, tokenizer, trees = random.Random(3), LLTokenizer("byte"), []
    for _ in range(300):
        matcher, text = start.deep_copy(), ""
        for piece in [FIRST, *draw.choices([*PIECES, '", "children": ['], k=60), *LAST]:
            tokens = tokenizer.tokenize_str(piece)
            if matcher.validate_tokens(tokens) == len(tokens):
                matcher.consume_tokens(tokens)
                text += piece
        trees.append(parse(text))
        assert check(trees[-1]) == (), text
    assert sum(any(at.node.operation for at in number_nodes(tree)) for tree in trees) > 50
    assert sum(any(node.needs for node in number_nodes(tree)) for tree in trees) > 50
