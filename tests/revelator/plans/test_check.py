"""The two rule sets."""

from dataclasses import replace

import pytest

from revelator.plans import Atomic, Dependent, check, parse
from revelator.plans.checking import MOST_LEAVES, find_misspelled_leaves
from revelator.plans.language import BNF


def codes(text, rules="scoped"):
    return [diagnostic.code for diagnostic in check(parse(text), rules)]


@pytest.mark.parametrize(
    ("text", "scoped", "paper"),
    [
        ("A", [], []),
        ("A * B {x}", [], []),
        ("A {x}", ["erroneous-dependency"], ["erroneous-dependency"]),
        ("A * B", ["missing-dependency"], ["missing-dependency"]),
        ("A + B {x}", ["erroneous-dependency"], ["erroneous-dependency"]),
        ("A * (B {x} + C {x})", [], []),
        ("A * (B {x} + C)", [], ["missing-dependency"]),
        ("A * (B + C)", ["missing-dependency"], ["missing-dependency", "missing-dependency"]),
        ("A * (B * C {x})", [], []),
        ("A * (B {x} * C {y})", [], ["erroneous-dependency"]),
        ("(A {x} + B) * C {y}", ["erroneous-dependency"], ["erroneous-dependency"]),
        ("A * B {x} * C {x} {y}", [], []),
        ("A {{x}} * B {y}", [], []),
    ],
)
def test_what_each_rule_set_says(text, scoped, paper):
    assert codes(text) == scoped
    assert codes(text, "paper") == paper


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("A * B {0}", "no-such-step", "{0}"),
        ("A * B {3}", "no-such-step", "{3}"),
        ("A * B {2}", "later-step", "{2}"),
        ("A {2} + B", "later-step", "{2}"),
        ("A * (B {1} + C {2})", "parallel-step", "{2}"),
        ("A + B {1*}", "parallel-step", "{1*}"),
        ("A * Is {1} in {1*}?", "each-and-all", "{1*}"),
        ("A * Is {x} in {1*}?", "each-and-all", "{1*}"),
        ("A + (B => argmax {3})", "no-such-step", None),
        ("A + (B => argmax {1})", "operation-reference", "(B => argmax {1})"),
        ("A => except", "one-part", "A => except"),
        ("A => equal", "one-part", "A => equal"),
        ("A * (B {1} => equal)", "one-part", "(B {1} => equal)"),
        ("A * B {1*} => equal", "one-part", "A * B {1*} => equal"),
        ("(A * B {1} => count) => equal", "one-part", "(A * B {1} => count) => equal"),
        ("(A + B => equal) + C => sum", "mixed-types", "(A + B => equal) + C => sum"),
    ],
)
def test_numbers_of_steps_and_operations_are_held_to_the_plan(text, code, place):
    found = check(parse(text))
    if place is None:
        assert [fault.code for fault in found] == ["operation-reference"]
        return
    assert [(fault.code, text[fault.start : fault.end]) for fault in found] == [(code, place)]
    assert found[0].hint and found == check(parse(text), "paper")


@pytest.mark.parametrize(
    "text",
    [
        "A * B {1} * C {1} {2*}",
        "(A + B => union) * C {3}",
        "A * (B {1} + C {1} => difference) * D {4}",
        "(A * B {1}) + (C * D {3}) => argmin {1} {3}",
        "(A + B => equal) + (C + D => equal) => judge",
        "A * B {1} => equal",
        "A * B {1} * C {2} => equal",
        "(A * (B {1} + C {1} => difference)) => equal",
    ],
)
def test_plans_with_numbers_and_operations_can_be_executed(text):
    assert check(parse(text)) == ()


def test_an_erroneous_dependency_points_at_its_placeholder():
    text = 'Who  is A? + "Where (is {it}?"'
    (diagnostic,) = check(parse(text))
    assert text[diagnostic.start : diagnostic.end] == "{it}"
    assert "{it}" in diagnostic.hint


def test_a_missing_dependency_points_at_the_right_operand():
    text = "A * (B + C)"
    (diagnostic,) = check(parse(text))
    assert text[diagnostic.start : diagnostic.end] == "(B + C)"


def test_folded_white_space_widens_the_place_to_the_leaf():
    text = "Where   is {it}?"
    (diagnostic,) = check(parse(text))
    assert (diagnostic.start, diagnostic.end) == (0, len(text))


def test_a_plan_that_was_built_is_checked_against_its_rendering():
    (diagnostic,) = check(Dependent(Atomic("A"), Atomic("B")))
    assert (diagnostic.start, diagnostic.end) == (4, 5)


def test_a_plan_that_was_built_in_part_has_places_in_its_rendering():
    plan = replace(parse("a * b {x}"), right=Atomic("b {x} {y}"))
    assert [found.code for found in check(replace(plan, right=Atomic("b")))] == ["missing-dependency"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a * b {%s*}", "missing-dependency"),
        ("a => argmin {%s}", "operation-reference"),
        ("a => where {%s} > 5", "no-condition"),
    ],
)
def test_a_number_of_thousands_of_digits_is_no_step(text: str, code: str) -> None:
    assert [fault["code"] for fault in BNF.diagnose(text % ("1" * 5_000))["diagnostics"]] == [code]


def test_a_plan_of_too_many_leaves_is_refused_at_the_first_that_is_too_many() -> None:
    text = " + ".join(["A"] * 100_000)
    [found] = check(parse(text))
    assert found.code == "too-many-leaves" and "100,000 questions" in found.message and found.hint
    assert (found.start, found.end) == (4 * MOST_LEAVES, 4 * MOST_LEAVES + 1)
    assert check(parse(" + ".join(["A"] * MOST_LEAVES))) == ()


def test_an_unknown_rule_set_is_refused():
    with pytest.raises(ValueError, match="scoped or paper"):
        check(parse("A"), "strict")


@pytest.mark.parametrize(
    ("text", "place", "meant"),
    [
        ("A * Where was { 1 } born?", "{ 1 }", "{1}"),
        ("A * Where was {1 } born?", "{1 }", "{1}"),
        ("A * Which of { 1* } won?", "{ 1* }", "{1*}"),
        ("A * Where was { the director } born?", "{ the director }", "{the director}"),
        ("A * (B + C { x })", "{ x }", "{x}"),
    ],
)
def test_a_reference_with_spaces_is_called_that_where_one_is_missing(text: str, place: str, meant: str) -> None:
    [found] = check(parse(text))
    assert found.code == "spaced-reference" and text[found.start : found.end] == place
    assert found.hint == f"write {meant}"


@pytest.mark.parametrize("text", ["A + B { 1 }", "A * B {1} and { 1 }"])
def test_a_reference_with_spaces_that_is_not_needed_is_refused_of_a_caller_s_plan(text: str) -> None:
    assert check(parse(text)) == ()
    assert [found["code"] for found in BNF.diagnose(text)["diagnostics"]] == ["spaced-reference"]
    assert BNF.diagnose(text.replace("{ 1 }", "{{ 1 }}"))["valid"], "doubled braces mean themselves"


@pytest.mark.parametrize("text", ["A * Where was {b born?", "A * Where was b} born?"])
def test_a_brace_without_partner_is_called_that(text: str) -> None:
    [found] = check(parse(text))
    assert "brace" in found.message and (found.start, found.end) == (4, len(text))


@pytest.mark.parametrize("text", ["Who is {a?", "Who is a}?", "A * Is {x} in {b?"])
def test_a_brace_without_partner_that_takes_nothing_is_found_by_itself(text: str) -> None:
    assert not check(parse(text))
    assert [found.code for found in find_misspelled_leaves(parse(text))] == ["lone-brace"]


def test_a_doubled_brace_means_itself() -> None:
    assert find_misspelled_leaves(parse("What does {{ mean in C?")) == ()


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('"" AND "mill"', ["empty-term"]),
        ('"a" AND NOT "a"', ["contradiction"]),
        ('Who built it? + "mill" AND NOT "wind"', []),
        ('"a quoted question"', []),
    ],
)
def test_a_leaf_that_is_a_logical_query_is_one_that_can_be_run(text: str, codes: list[str]) -> None:
    assert [fault.code for fault in find_misspelled_leaves(parse(text))] == codes
    assert BNF.diagnose(text)["valid"] == (not codes)
