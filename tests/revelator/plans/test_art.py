"""The atomic reasoning tree: its JSON form, numbering, references and faults."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from revelator.errors import ExpressionError
from revelator.plans import bnf
from revelator.plans.art import (
    Art,
    check,
    draw_tree,
    number_nodes,
    parse,
    references,
    render,
    schema,
    substitute,
    to_json,
)
from revelator.plans.operators import Call, Filter, Relate, Search, fill, read_call, spell_call

TEXT = st.text(min_size=1).filter(str.strip)
CALLS = st.one_of(
    st.builds(Search, TEXT, st.just("") | TEXT),
    st.builds(Relate, TEXT, TEXT, st.sampled_from([None, True, False])),
    st.builds(Filter, st.lists(TEXT, min_size=1, max_size=3).map(tuple), TEXT),
)
LEAVES = st.builds(Art, TEXT, st.none() | CALLS)
TREES = st.recursive(
    LEAVES,
    lambda trees: st.builds(
        lambda q, kids: Art(q, children=tuple(kids)), TEXT, st.lists(trees, min_size=1, max_size=3)
    ),
    max_leaves=8,
)

ALBUMS = Art(
    "How many studio albums did Shakira release before 2005?",
    children=(
        Art(
            "Which studio albums did Shakira release?",
            children=(
                Art("Who is Shakira?", Search("Shakira", "singer")),
                Art("Which are the studio albums of [4]?", Relate("[4]", "studio album")),
            ),
        ),
        Art("Which of [1] came out before 2005?", Filter(("[1]",), "before 2005")),
        Art("How many are in [2]?"),
    ),
)


@given(TREES)
def test_a_rendered_tree_parses_to_itself(tree: Art) -> None:
    assert parse(render(tree)) == tree


@given(TREES)
def test_every_rendered_tree_fits_the_schema(tree: Art) -> None:
    assert fits(to_json(tree), schema()["$defs"]["node"])


@given(TREES)
def test_numbers_run_breadth_first(tree: Art) -> None:
    nodes = number_nodes(tree)
    assert [n.number for n in nodes] == list(range(len(nodes)))
    assert [len(n.path) for n in nodes] == sorted(len(n.path) for n in nodes)
    assert all(nodes[child].parent == n.number for n in nodes for child in n.children)


@given(TREES, st.text())
def test_no_text_brings_down_reader_or_checker(tree: Art, text: str) -> None:
    check(tree)
    draw_tree(tree)
    for spoiled in (text, render(tree) + text, render(tree)[: len(text)]):
        try:
            parse(spoiled)
        except ExpressionError as error:
            assert error.hint and error.line >= 1 and "^" in error.excerpt


@given(CALLS)
def test_a_spelled_operator_is_read_as_itself_and_is_one_leaf_of_a_plan(call: Call) -> None:
    written = replace(call, inverse=call.inverse or None) if isinstance(call, Relate) else call
    assert read_call(spell_call(call)) == written
    assert bnf.parse(bnf.quote(spell_call(call))) == bnf.Atomic(spell_call(call))


@pytest.mark.parametrize(
    "text",
    ["Who directed UHF?", "Search(UHF)", 'Search("UHF"', 'Relate("UHF")', 'Filter("a", "b")', 'Search("a", ^"b")'],
)
def test_any_other_text_is_no_operator(text: str) -> None:
    assert read_call(text) is None


def test_an_operator_takes_values_that_are_not_read_again_and_a_filter_each_of_a_list() -> None:
    values = {"film": ["{name}"], "films": ["A", 'B "x"', "A"]}
    assert fill(Relate("{film}", "by {name}"), values) == (Relate("{name}", "by {name}"), ("{name}",))
    kept = ("A", 'B "x"', "the {name}")
    assert fill(Filter(("{films}", "the {film}"), "of {films}"), values) == (Filter(kept, 'of A, B "x", A'), kept)
    assert fill(Relate("{films}", "by"), values) == (Relate('A, B "x", A', "by"), ("A", 'B "x"', "A"))


def test_the_papers_example_is_numbered_as_it_stands_there() -> None:
    assert check(ALBUMS) == ()
    assert [n.node.question for n in number_nodes(ALBUMS)][3:] == [
        "How many are in [2]?",
        "Who is Shakira?",
        "Which are the studio albums of [4]?",
    ]
    assert '5 Which are the studio albums of [4]?  Relate("[4]", "studio album")' in draw_tree(ALBUMS)


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("", "not JSON", "not-json"),
        ("[]", "the root", "type"),
        ('{"question": " ", "direct": true}', "question", "text"),
        ('{"question": "a", "search": {"name": "b"}, "direct": true}', "the root", "way"),
        ('{"question": "a", "children": [{"question": "b", "relate": {"to": "c"}}]}', "children[0].relate", "missing"),
        ('{"question": "a", "filter": {"entities": ["b", 3], "condition": "c"}}', "filter.entities[1]", "text"),
        ('{"question": "a", "search": {"name": "b", "url": "c"}}', "search.url", "unknown"),
        ('{"question": "a", "question": "b", "direct": true}', "stands twice", "twice"),
        ('{"question": "a", "children": [' * 500, "deeper", None),
    ],
)
def test_a_fault_names_its_place_and_the_way_out(text: str, place: str, code: str | None) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert place in str(caught.value) or code is None
    assert caught.value.code == code or code is None
    assert caught.value.hint


def test_the_caret_stands_under_the_value_that_is_wrong() -> None:
    text = json.dumps({"question": "a", "children": [{"question": "b", "search": {"name": ""}}]})
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert text[caught.value.start : caught.value.end] == '""'


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("[3]?", "answered later"),
        ("[0]?", "stands in"),
        ("[2]?", "itself"),
        ("[9]?", "last node is 3"),
        ("?", "names no"),
    ],
)
def test_a_reference_must_be_answered_before_it_is_needed(question: str, message: str) -> None:
    tree = Art("q", children=(Art("a", Search("x")), Art(question), Art("c", Search("y"))))
    [found] = check(tree)
    assert message in found.message
    assert found.message.startswith("children[1].question: node 2 ")
    assert render(tree)[found.start : found.end] == json.dumps(question)


def test_the_root_alone_may_be_direct() -> None:
    assert check(Art("Who directed UHF?")) == ()


def test_references_are_replaced_by_answers_that_are_not_read_again() -> None:
    assert substitute("[1] and [[1]] and [7]", {1: ["[2]", "b"], 2: ["no"]}) == "[2], b and [1] and [7]"
    assert substitute("[[[1]]] and [[1]]]", {1: ["no"]}) == "[[1]] and [1]]"
    assert references("[2] [1] [2] [[3]] [x]") == (2, 1)


def fits(value: object, rule: dict) -> bool:
    """As much of JSON Schema as the schema uses."""
    if "$ref" in rule:
        return fits(value, schema()["$defs"][rule["$ref"].rpartition("/")[2]])
    if "anyOf" in rule:
        return any(fits(value, one) for one in rule["anyOf"])
    if "const" in rule:
        return value is rule["const"]
    match rule["type"]:
        case "object":
            return (
                isinstance(value, dict)
                and set(rule["required"]) <= set(value) <= set(rule["properties"])
                and all(fits(item, rule["properties"][name]) for name, item in value.items())
            )
        case "array":
            return isinstance(value, list) and len(value) > 0 and all(fits(item, rule["items"]) for item in value)
        case "string":
            return isinstance(value, str) and bool(value.strip())
        case "boolean":
            return isinstance(value, bool)
    raise AssertionError(rule)


@pytest.mark.parametrize("unit", ["{}", "0", '{"question": "q", "search": {}}'])
def test_a_tree_of_any_size_is_refused_at_its_first_fault(unit: str) -> None:
    text = '{"question": "q", "children": [' + ", ".join([unit] * 5_000) + "]}"
    with pytest.raises(ExpressionError, match=r"children\[0\]") as refused:
        parse(text)
    assert isinstance(refused.value.__cause__, ValidationError) and refused.value.__cause__.error_count() <= 2


def test_a_node_of_very_many_fields_is_refused_without_listing_them() -> None:
    text = '{"question": "q", ' + ", ".join(f'"k{number}": 0' for number in range(5_000)) + "}"
    with pytest.raises(ExpressionError, match="5,001 keys; at most 100") as refused:
        parse(text)
    assert isinstance(refused.value.__cause__, ValidationError) and refused.value.__cause__.error_count() == 1
