"""The language of logical retrieval: parse and render are inverse, faults point, NOT moves inwards."""

from __future__ import annotations

import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import ExpressionError
from revelator.plans import logic
from revelator.plans.logic import And, Not, Or, Query, Term, holds
from tests.revelator.plans.queries import extend, few_terms

texts = st.text(min_size=1, max_size=12) | st.sampled_from(['a "b" c', "a\\b", "NOT", " AND ", "(", "é\n\u2028"])


queries: st.SearchStrategy[Query] = st.recursive(texts.map(Term), extend, max_leaves=8)


@given(queries)
def test_what_is_rendered_parses_into_the_same_query(query: Query) -> None:
    assert logic.parse(logic.render(query)) == query


@given(queries)
def test_the_spelling_that_is_learnt_reads_as_the_same_query(query: Query) -> None:
    assert logic.parse(logic.render_spaced(query)) == query
    assert all(term == term.strip() for term in logic.list_terms(query))


@given(few_terms)
def test_a_query_is_equivalent_to_its_normal_form_and_not_to_its_negation(query: Query) -> None:
    assert logic.are_equivalent(query, logic.move_negations_inwards(query))
    assert not logic.are_equivalent(query, Not(query)) and not logic.are_equivalent(query, Term("e"))


@given(queries)
def test_rendered_text_is_canonical_and_one_line(query: Query) -> None:
    text = logic.render(query)
    assert logic.render(logic.parse(text)) == text
    assert len(text.splitlines()) == 1


@given(few_terms)
def test_normal_form_means_the_same_and_negates_terms_alone(query: Query) -> None:
    normal = logic.move_negations_inwards(query)
    for values in itertools.product((False, True), repeat=4):
        truth = dict(zip("abcd", values, strict=True))
        assert holds(normal, truth) == holds(query, truth)
    assert all(isinstance(node.operand, Term) for node in logic.walk(normal) if isinstance(node, Not))
    assert logic.count_negations(normal) == logic.count_negations(query)


def test_not_binds_tighter_than_and_and_and_tighter_than_or() -> None:
    a, b, c = map(Term, "abc")
    assert logic.parse('NOT "a" AND "b" OR "c"') == Or((And((Not(a), b)), c))
    assert logic.parse('"a" AND ("b" OR NOT "c")') == And((a, Or((b, Not(c)))))


def test_spacing_is_free_and_groups_that_change_nothing_vanish() -> None:
    assert logic.render(logic.parse(' ( "a"AND("b"  AND\n"c") )')) == '"a" AND "b" AND "c"'


@pytest.mark.parametrize(
    ("text", "code", "start"),
    [
        ("", "empty", 0),
        ("  ", "empty", 0),
        ('"a" AND', "no-operand", 4),
        ('AND "a"', "no-operand", 0),
        ('"a" OR AND "b"', "no-operand", 7),
        ('"a" "b"', "no-operator", 4),
        ('"a" NOT "b"', "no-operator", 4),
        ('("a"', "open-group", 0),
        ('"a")', "no-group", 3),
        ("()", "no-operand", 1),
        ('"a', "open-quote", 0),
        ('"a" and "b"', "lower-case", 4),
        ('"a" AND bees', "unquoted", 8),
        (r'"a\x"', "bad-escape", 2),
        ("NOT (" * 300 + '"a"' + ")" * 300, "too-deep", 0),
        ('"' + "a" * 100_001 + '"', "too-long", 0),
    ],
)
def test_a_fault_has_a_code_and_a_place(text: str, code: str, start: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        logic.parse(text)
    assert (caught.value.code, caught.value.start) == (code, start)
    assert "^" in caught.value.excerpt


@given(st.text(alphabet='"ab ANDORT()\\', max_size=40))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    try:
        logic.parse(text)
    except ExpressionError as error:
        assert 0 <= error.start <= error.end <= len(text)


def test_deep_nesting_within_the_limit_parses() -> None:
    assert logic.parse("(" * 5000 + '"a"' + ")" * 5000) == Term("a")
    query = logic.parse("NOT (" * 150 + '"a"' + ")" * 150)
    assert logic.move_negations_inwards(query) == Term("a")


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('"a" AND NOT "b"', []),
        ('"a" OR "?!"', ["empty-term"]),
        ('"a" AND NOT "a"', ["contradiction"]),
        ('"a" OR NOT "a"', ["tautology"]),
        (" AND ".join(f'"t{i}"' for i in range(65)), ["too-many-terms"]),
        (" AND ".join(['"a"'] * 257), ["too-many-terms"]),
    ],
)
def test_check_says_what_cannot_rank_documents(text: str, codes: list[str]) -> None:
    assert [d.code for d in logic.check(logic.parse(text))] == codes


def test_checking_holds_no_truth_table_for_each_place_of_a_term() -> None:
    """16 terms are tables of 65,536 rows; held for each of 256 places, the tables would be 16 MB."""
    query = logic.parse(" AND ".join(f'"{"abcdefghijklmnop"[i % 16]}"' for i in range(logic.MAX_LITERALS)))
    tracemalloc.start()
    assert logic.check(query) == ()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_check_points_into_the_rendered_text_of_a_query_that_was_not_parsed() -> None:
    query = Or((Term("a"), Term("…")))
    (found,) = logic.check(query)
    assert logic.render(query)[found.start : found.end] == json.dumps("…", ensure_ascii=False)


def test_constructors_refuse_another_spelling() -> None:
    a, b = Term("a"), Term("b")
    with pytest.raises(ValueError, match="two or more"):
        And((a,))
    with pytest.raises(ValueError, match="straight inside"):
        Or((a, Or((a, b))))
