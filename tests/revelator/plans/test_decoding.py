"""The decoder's grammar, as automata that know nothing of the parser read it: ours, and that of vLLM."""

from __future__ import annotations

import random

import pytest
from llguidance import LLMatcher, LLTokenizer

from revelator.plans import check, logic, parse
from revelator.plans.decoding import make_json_grammar, make_logic_grammar, make_plan_grammar
from revelator.plans.grammar import Grammar
from tests.revelator.plans import vllm_automaton
from tests.revelator.plans.queries import BEYOND_GRAMMAR

ALPHABET = [
    *"ab5+*×()\"\\{} '?",
    " + ",
    " * ",
    "{x}",
    "{a_b}",
    "{{x}}",
    "é",
    "电",
    " (",
    " => ",
    "count",
    "argmin",
    " {1}",
    "{2*}",
]


@pytest.fixture(scope="module")
def bytes_only() -> LLTokenizer:
    return LLTokenizer("byte")


def accepts(tokenizer: LLTokenizer, grammar: Grammar, text: str) -> bool:
    """Both say the same."""
    matcher = LLMatcher(tokenizer, grammar.text)
    accepted = matcher.consume_tokens(tokenizer.tokenize_str(f" {text}")) and matcher.is_accepting()
    assert vllm_automaton.accepts(grammar.ebnf, text) == accepted
    return accepted


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "A * B {x} * C {y}'s",
        "A * What is {the twin city} of (the {x} B)?",
        "(A + B) * C {x}",
        "A * (B {x} * C {y})",
        "A * (B {x} + C)",
        "A * (B + (C + D {x}))",
        "A + B * C {x}",
        "Titanic (1997 film)",
        "(Live) at Leeds + *NSYNC",
        '"What? (Live) + More" * Who sang "{song}"?',
        r'"a \"b\" \\ c" + 12" f(x) g()?',
        "من أخرج؟ * أين ولد {المخرج}؟",
        "A * B {1} * C {1} {2*}",
        "(A * B {1}) + C => argmin {1} {3}",
        "(A + B => union) * C {3}",
        "A * (B {1} + C {1} => difference) => mean",
        "(A * B {1} => where {1} >= 5 million) => count",
        "A * B {1} => where != São Tomé",
        "A * (B {1} + C {1}) => where {1} > {3}",
    ],
)
def test_what_checks_in_canonical_spelling_can_be_written(bytes_only: LLTokenizer, text: str) -> None:
    assert check(parse(text)) == ()
    assert accepts(bytes_only, make_plan_grammar(), text)


@pytest.mark.parametrize(
    "text",
    [
        "A {x}",
        "A * B",
        "A + B {x}",
        "A * (B + C)",
        "A * (B * C)",
        "(A + B {x}) * C {y}",
        "A *",
        "()",
        "(A",
        "A ) B",
        '"A',
        "A × B {x}",
        "A  B",
        "A * B {{x}}",
        "A * B {x",
        f"A * B {{{'x' * 65}}}",
        "A\nB",
        r'A * "\u007bx\u007d"',
        "A * B {0}",
        "A => total",
        "A => count * B",
        "A * (B => count)",
    ],
)
def test_what_does_not_check_or_is_spelt_otherwise_cannot_be_written(bytes_only: LLTokenizer, text: str) -> None:
    assert not accepts(bytes_only, make_plan_grammar(), text)


def test_every_complete_text_of_random_walks_checks(bytes_only: LLTokenizer) -> None:
    draw = random.Random(3)
    matcher = LLMatcher(bytes_only, make_plan_grammar().text)
    complete = 0
    for _ in range(300):
        matcher.reset()
        matcher.consume_tokens(bytes_only.tokenize_str(" "))
        text = ""
        for piece in draw.choices(ALPHABET, k=40):
            tokens = bytes_only.tokenize_str(piece)
            if matcher.validate_tokens(tokens) == len(tokens):
                matcher.consume_tokens(tokens)
                text += piece
                if matcher.is_accepting():
                    complete += 1
                    assert {fault.code for fault in check(parse(text))} <= BEYOND_GRAMMAR, text
    assert complete > 500


@pytest.mark.parametrize(
    "text", ['"a"', 'NOT "a b" AND ("c" OR NOT "d")', r'"a \"b\" \\" OR "1"', '"電𠮷"', 'NOT (NOT "a")']
)
def test_a_logical_query_in_canonical_spelling_can_be_written(bytes_only: LLTokenizer, text: str) -> None:
    assert logic.render(logic.parse(text)) == text and logic.check(logic.parse(text)) == ()
    assert accepts(bytes_only, make_logic_grammar(), text)
    assert accepts(bytes_only, make_logic_grammar(), logic.render_spaced(logic.parse(text)))


@pytest.mark.parametrize(
    "text", ["a", '""', '"  a"', '"_"', '"a" "b"', '"a" and "b"', 'NOT NOT "a"', '("a"', '"a\nb"', '"a']
)
def test_what_is_no_logical_query_or_spelt_otherwise_cannot_be_written(bytes_only: LLTokenizer, text: str) -> None:
    assert not accepts(bytes_only, make_logic_grammar(), text)


def test_a_json_schema_is_a_grammar(bytes_only: LLTokenizer) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    grammar = make_json_grammar(schema)
    assert accepts(bytes_only, grammar, '["a", "b"]')
    assert not accepts(bytes_only, grammar, "[]")


def test_alternatives_inside_an_object_are_closed_with_it(bytes_only: LLTokenizer) -> None:
    one = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1}
    forms = [{"type": "object", "properties": {name: one}, "required": [name]} for name in ("yes", "no")]
    schema = {"type": "object", "properties": {"reply": {"anyOf": forms}}, "required": ["reply"]}
    grammar = make_json_grammar(schema)
    assert all(accepts(bytes_only, grammar, f'{{"reply": {{"{name}": ["a"]}}}}') for name in ("yes", "no"))
    for text in ('{"reply": {"yes": ["a"]}', '{"no": ["a"]}', '{"reply": {"no": ["a", "b"]}}', '{"reply": {"no": []}}'):
        assert not accepts(bytes_only, grammar, text)
