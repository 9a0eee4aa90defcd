"""What is not an expression: a typed error that points, in time linear in the text."""

import pytest

from revelator.plans import ExpressionError, parse, render
from revelator.plans.bnf import MAX_CHARACTERS


def refused(text):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "code", "start", "end"),
    [
        ("", "empty", 0, 0),
        (" \n ", "empty", 0, 3),
        ("A ) B", "unbalanced-parenthesis", 2, 3),
        ("A (B", "unbalanced-parenthesis", 2, 3),
        ("A :)", "unbalanced-parenthesis", 3, 4),
        ("A +", "dangling-operator", 2, 3),
        ("× A", "dangling-operator", 0, 1),
        ("A + * B", "dangling-operator", 4, 5),
        ("(A +) * B", "dangling-operator", 3, 4),
        ("(* A)", "dangling-operator", 1, 2),
        ("()", "empty-group", 0, 2),
        ("A * ( )", "empty-group", 4, 7),
        ("(A + B) C", "operator-in-text", 3, 4),
        ("f (A + B)", "operator-in-text", 5, 6),
        ('who sang "Hello', "unclosed-quote", 9, 10),
        (r'"C:\data"', "bad-escape", 3, 4),
        ("=> count", "dangling-operator", 0, 2),
        ("A =>", "dangling-operator", 2, 4),
        ("A ⇒ count", "foreign-arrow", 2, 3),
        ("(A + B) ⇒ argmin {1} {2}", "foreign-arrow", 8, 9),
        ("A * (B {1} + C {1}  ⇒ union )", "foreign-arrow", 20, 21),
        ("A =>count", "foreign-arrow", 2, 4),
        ("A + B=> union", "foreign-arrow", 5, 7),
        ("A -> count", "foreign-arrow", 2, 4),
        ("(A → count) + B", "foreign-arrow", 3, 4),
        ("A => Count", "unknown-operation", 5, 10),
        ("A => count * B", "operation-inside", 11, 12),
        ("A => argmin {1} => count", "operation-inside", 16, 18),
        ("A => argmin {0}", "operation-reference", 12, 15),
        ("A => count {1}", "operation-reference", 11, 14),
        ("f (A => B)", "operator-in-text", 5, 7),
        ("A => where", "no-condition", 9, 10),
        ("A => where {1} >", "no-condition", 15, 16),
        ("A => where 1980", "no-condition", 11, 15),
        ('A => where = " "', "no-condition", 11, 16),
        ("A => where > 1980 * B", "operation-inside", 18, 19),
        ("(A * B {1} → where {1} >= 5 km) + C", "foreign-arrow", 11, 12),
    ],
)
def test_each_fault_has_a_code_and_a_place(text, code, start, end):
    error = refused(text)
    assert (error.code, error.start, error.end) == (code, start, end)
    assert error.hint


def test_the_error_shows_line_column_and_a_caret():
    error = refused("A +\nB ) C")
    assert (error.line, error.column) == (2, 3)
    assert error.excerpt == "  B ) C\n    ^"
    assert "line 2, column 3" in str(error)


def test_ten_thousand_parentheses_are_too_deep():
    assert refused("(" * 10_000 + "A" + ")" * 10_000).code == "too-deep"
    assert refused("(" * 10_000).code == "unbalanced-parenthesis"


def test_a_chain_that_is_too_long_is_too_deep():
    assert refused(" * ".join(["A"] * 1_000)).code == "too-deep"


def test_a_megabyte_is_too_long_and_its_error_is_short():
    error = refused("A" * MAX_CHARACTERS)
    assert error.code == "too-long"
    assert len(str(error)) < 500


LIMIT = MAX_CHARACTERS - 1


@pytest.mark.parametrize("unit", ["a ", "{", "{a ", "{{a}}", "a (b) ", '"a" ', '12" '])
def test_long_texts_that_invite_backtracking_are_read(unit):
    plan = parse("b " + unit * (LIMIT // len(unit) // 4))
    assert parse(render(plan)) == plan


@pytest.mark.parametrize("unit", ['" \\', "\\", "(", ") ", "+ "])
def test_long_faults_are_found_and_shown_shortly(unit):
    error = refused('"' * (unit == "\\") + unit * (LIMIT // len(unit) // 4))
    assert len(str(error)) < 500


def test_a_wide_list_is_read_and_rendered():
    text = " + ".join(["A"] * 20_000)
    assert render(parse(text)) == text


def test_the_caret_stands_under_the_fault_behind_characters_two_columns_wide():
    source, carets = refused("東京 ) 大阪").excerpt.splitlines()
    assert (source, carets) == ("  東京 ) 大阪", "       ^")


def test_control_characters_are_shown_and_not_sent_to_the_terminal():
    source, _ = refused("a\x1b[31m\u202e ) b").excerpt.splitlines()
    assert source == "  a·[31m· ) b"
