"""Laws of the language, over any plan and any text."""

import json
from importlib.resources import files
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark
from lark import Lark

from revelator.plans import (
    Atomic,
    Dependent,
    ExpressionError,
    Operation,
    Sequence,
    bind,
    check,
    draw_tree,
    list_leaves,
    list_steps,
    parse,
    render,
    spell_by_numbers,
    to_json,
    to_letters,
)
from revelator.plans.bnf import read_reference, renumber
from revelator.plans.lexer import reads_as_itself
from revelator.plans.operations import CONDITIONAL, EXTREMES, OPERATIONS, SIGNS, Condition

SYNTAX = [
    "+",
    "*",
    "×",
    "(",
    ")",
    '"',
    "\\",
    "{",
    "}",
    "{x}",
    "{a_b}",
    "{{x}}",
    "+",
    ")",
    "(",
    "*",
    "()",
    "(+)",
    "C++",
    "=>",
    "=>",
    " => count",
    " ⇒ count",
    "⇒",
    "{ 1 }",
    "{1}",
    "{2*}",
    "=",
    "5*3",
    '12"',
    "{director}'s",
    "(1997",
    "film)",
    "a",
    "b",
    "5",
    "[",
    "]",
    "\\n",
    "é",
    "你好",
    "שלום",
    "مرحبا",
    "🙂",
    "👩\u200d🚀",
]
SPACES = [" ", " ", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2028", "\u0085", "\x1c", "\x00", "( ", " )", " + "]
SURROGATES = ["\ud83d", "\ude00"]

syntax_like = st.lists(st.sampled_from(SYNTAX + SPACES + SURROGATES), max_size=12).map("".join)
texts = st.one_of(st.text(max_size=24), syntax_like)
references = st.integers(1, 12).map("{{{}}}".format)
conditions = st.builds(Condition, st.sampled_from(list(SIGNS)), texts.filter(str.strip) | references)


def inner_nodes(nodes):
    items = nodes.filter(lambda node: not isinstance(node, Sequence))
    numbers = st.lists(st.integers(1, 12), max_size=3).map(tuple)
    return st.one_of(
        st.builds(Dependent, nodes, nodes),
        st.lists(items, min_size=2, max_size=4).map(lambda i: Sequence(tuple(i))),
        st.builds(Operation, nodes, st.sampled_from([name for name in OPERATIONS if name not in CONDITIONAL])),
        st.builds(Operation, nodes, st.sampled_from(EXTREMES), numbers),
        st.builds(Operation, nodes, st.sampled_from(CONDITIONAL), numbers, conditions),
    )


LEAVES = [Atomic("A"), Atomic("B {x}"), Atomic("C {y} {x}"), Atomic("D {1}"), Atomic("E {2*} {x}")]


plans = st.recursive(st.builds(Atomic, texts), inner_nodes, max_leaves=10)
slow = settings(suppress_health_check=list(HealthCheck))


@settings(slow, max_examples=400)
@given(plans)
def test_parsing_the_rendering_of_any_plan_gives_that_plan(plan):
    text = render(plan)
    again = parse(text)
    assert again == plan
    assert hash(again) == hash(plan)
    assert [leaf.text for leaf in list_leaves(again)] == [leaf.text for leaf in list_leaves(plan)]
    assert render(again) == text
    assert len(text.splitlines()) == 1


@settings(slow, max_examples=600)
@given(texts)
def test_any_text_is_read_as_a_plan_or_refused_with_a_place_and_a_hint(text):
    try:
        plan = parse(text)
    except ExpressionError as error:
        assert 0 <= error.start <= error.end <= len(text)
        assert error.code and error.hint and error.line >= 1 and error.column >= 1
        assert "^" in error.excerpt
    else:
        assert parse(render(plan)) == plan
        assert render(parse(render(plan))) == render(plan)


@settings(slow, max_examples=100)
@given(plans)
def test_a_renumbered_plan_names_the_moved_steps_in_its_operations(plan):
    moved = renumber(plan, lambda number: number + 7)
    for before, after in zip(list_steps(plan), list_steps(moved), strict=True):
        if type(before) is Operation:
            one, other = before.condition, after.condition
            named = [(*step.references, *(of.steps if of else ())) for step, of in ((before, one), (after, other))]
            assert [number + 7 for number in named[0]] == list(named[1])
            assert (one and (one.sign, one.steps or one.value)) == (
                other and (other.sign, tuple(n - 7 for n in other.steps) or other.value)
            )


@settings(slow, max_examples=200)
@given(plans, plans)
def test_plans_are_equal_if_and_only_if_their_renderings_are(one, other):
    assert (one == other) == (render(one) == render(other))


@settings(slow, max_examples=50)
@given(st.recursive(st.sampled_from(LEAVES), inner_nodes, max_leaves=8))
def test_what_paper_accepts_scoped_accepts(plan):
    assume(not check(plan, "paper"))
    assert check(plan) == ()


@settings(slow, max_examples=100)
@given(st.recursive(st.sampled_from(LEAVES), inner_nodes, max_leaves=8))
def test_every_placeholder_of_a_plan_that_checks_has_a_producer_and_its_numbers_say_the_same(plan):
    assume(not check(plan))
    sources = bind(plan).sources
    for step, inputs in zip(list_steps(plan), sources, strict=True):
        assert set(inputs) == (set(step.placeholders) if isinstance(step, Atomic) else set())
    numbered = spell_by_numbers(plan)
    assert check(numbered) == () and spell_by_numbers(numbered) == numbered
    for leaf, inputs, before in zip(list_steps(numbered), bind(numbered).sources, sources, strict=True):
        assert set(inputs.values()) == set(before.values())
        assert isinstance(leaf, Operation) or all(map(read_reference, leaf.placeholders))


@settings(slow, max_examples=150)
@given(st.recursive(st.sampled_from(LEAVES), inner_nodes, max_leaves=8))
def test_a_producer_always_stands_left_of_its_consumer(plan):
    for index, inputs in enumerate(bind(plan).sources):
        assert all(source < index for source in inputs.values())


@settings(slow, max_examples=200)
@given(plans)
def test_every_drawing_of_any_plan_can_be_made(plan):
    assert json.loads(json.dumps(to_json(plan)))["leaves"] == len(list_leaves(plan))
    assert len(list_leaves(parse(to_letters(plan)))) == len(list_leaves(plan))
    assert draw_tree(plan)
    assert eval(repr(plan), {"parse": parse}) == plan


def grammar() -> Lark:
    text = files("revelator.plans").joinpath("bnf.lark").read_text(encoding="utf-8")
    return Lark(text, parser="earley")


EARLEY = grammar()


@settings(slow, max_examples=100)
@given(st.recursive(st.builds(Atomic, syntax_like.filter(lambda text: len(text) < 16)), inner_nodes, max_leaves=3))
def test_the_grammar_file_alone_accepts_every_canonical_text(plan):
    assume(not any("\ud800" <= c <= "\udfff" for leaf in list_leaves(plan) for c in leaf.text))
    EARLEY.parse(render(plan))


def test_the_grammar_file_accepts_every_short_text_that_is_written_without_quotes():
    for length in range(1, 5):
        for characters in product('a+() "', repeat=length):
            if reads_as_itself(text := "".join(characters)):
                EARLEY.parse(text)


@settings(slow, max_examples=20)
@given(from_lark(EARLEY))
def test_everything_that_the_grammar_file_allows_is_read(text):
    parse(text)


@pytest.mark.parametrize("text", ["", "A +", "* A", "A ) B", "(A", "A + + B", "()", "A *"])
def test_what_the_parser_refuses_the_grammar_file_refuses(text):
    from lark import LarkError

    with pytest.raises(LarkError):
        EARLEY.parse(text)
    with pytest.raises(ExpressionError):
        parse(text)
