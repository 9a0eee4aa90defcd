"""Operations against Python's own numbers, dates and sets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import date
from operator import eq, ge, gt, le, lt, ne

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from revelator.computing.comparisons import are_alike, find_extremes, meets
from revelator.computing.operations import Case, Operand, operate
from revelator.plans.operations import CONDITIONAL, OPERATIONS, SIGNS, Condition

NUMBERS = st.lists(st.integers(1, 10_000), min_size=1, max_size=6)
NAMES = st.lists(
    st.lists(st.sampled_from(["Ayr", "Bute", "Cadiz", "Delft", "Essen"]), max_size=4), min_size=2, max_size=3
)
DATES = st.lists(st.dates(date(1200, 1, 1)), min_size=1, max_size=6)


def do(name: str, parts: Sequence[Sequence[str]], labels: Sequence[str] = ()) -> tuple[str, ...] | None:
    """Each part has one case."""
    named = [*labels, *[""] * (len(parts) - len(labels))]
    operands = [Operand(step, (Case(tuple(part), {}),), named[step]) for step, part in enumerate(parts)]
    return operate(name, operands)


def in_tonnes(numbers: Sequence[int]) -> list[list[str]]:
    return [[f"{number} kg"] for number in numbers]


@given(NUMBERS)
def test_numbers_are_added_and_compared_as_python_does(numbers: list[int]) -> None:
    weights = in_tonnes(numbers)
    assert do("sum", weights) == (f"{sum(numbers):,} kg",)
    assert float(do("mean", weights)[0].removesuffix(" kg").replace(",", "")) == pytest.approx(
        statistics.mean(numbers), abs=1e-6
    )
    assert do("min", weights) == (f"{min(numbers)} kg",) and do("max", weights) == (f"{max(numbers)} kg",)


@given(NUMBERS.filter(lambda numbers: len(numbers) > 1))
def test_the_part_with_the_greatest_value_is_named_and_ties_name_all(numbers: list[int]) -> None:
    labels = [f"part {place}" for place in range(len(numbers))]
    best = [label for label, number in zip(labels, numbers, strict=True) if number == max(numbers)]
    assert do("argmax", in_tonnes(numbers), labels) == tuple(best)


@given(DATES)
def test_dates_are_ordered_in_every_spelling(days: list[date]) -> None:
    spellings = ["{0:%d} {0:%B} {1}", "{0:%B} {0:%d}, {1}", "{1:04}-{0:%m}-{0:%d}"]
    said = [spellings[place % 3].format(day, day.year) for place, day in enumerate(days)]
    assert [days[place] for place in find_extremes(said, greatest=False)] == [min(days)] * days.count(min(days))
    assert [days[place] for place in find_extremes(said, greatest=True)] == [max(days)] * days.count(max(days))


@given(NAMES)
def test_lists_are_united_intersected_and_left_out_as_sets_are(lists: list[list[str]]) -> None:
    sets = [set(names) for names in lists]
    assume(any(lists))
    assert set(do("union", lists) or ()) == set().union(*sets)
    assert set(do("intersect", lists) or ()) == set.intersection(*sets)
    assert set(do("except", lists) or ()) == sets[0].difference(*sets[1:])
    assert do("count", lists) == (str(len(set().union(*sets))),)


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_difference_has_no_sign_and_is_in_years_of_dates(one: int, other: int) -> None:
    assert do("difference", [[f"{one} m"], [f"{other} m"]]) == (f"{abs(one - other):,} m",)
    years = [f"May {year:04}" for year in (one, other)]
    assert do("difference", [[year] for year in years]) == (f"{abs(one - other):,}",)


@given(
    st.sampled_from([name for name in OPERATIONS if name not in ("judge", *CONDITIONAL)]),
    st.lists(st.lists(st.text(), max_size=3), max_size=4),
)
def test_no_answers_of_documents_break_an_operation(name: str, parts: list[list[str]]) -> None:
    do(name, parts)


PYTHON = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
WRITTEN = [(st.integers(1, 99), "{} kg"), (st.integers(1000, 3000), "{}"), (st.integers(1000, 3000), "May {}")]


@given(st.sampled_from(list(SIGNS)), st.sampled_from(WRITTEN), st.data())
def test_where_keeps_what_each_value_that_meets_the_condition_is_about(sign: str, written: tuple, data: st.DataObject):
    numbers, form = written
    values, than = data.draw(st.dictionaries(st.text(min_size=1), numbers, max_size=6)), data.draw(numbers)
    cases = tuple(Case((form.format(value),), {0: name}) for name, value in values.items())
    condition = Condition(sign, form.format(than))
    kept = tuple(name for name, value in values.items() if PYTHON[sign](value, than))
    assert operate("where", [Operand(1, cases)], (1,), condition) == kept
    listed = Operand(0, (Case(tuple(form.format(value) for value in values.values()), {}),))
    met = dict.fromkeys(form.format(value) for value in values.values() if PYTHON[sign](value, than))
    assert operate("where", [listed], (), condition) == tuple(met)


@given(
    st.sampled_from(list(SIGNS)), st.dictionaries(st.text(min_size=1), st.tuples(st.integers(1, 9), st.integers(1, 9)))
)
def test_where_compares_each_value_with_what_the_step_answers_about_the_same(sign: str, values: dict) -> None:
    earned, cost = (
        Operand(step, tuple(Case((f"{both[step - 1]} kg",), {0: name}) for name, both in values.items()))
        for step in (1, 2)
    )
    kept = tuple(name for name, both in values.items() if PYTHON[sign](*both))
    for operands in ([earned], [earned, cost], [cost, earned]):
        assert operate("where", operands, (), Condition(sign, "{3}"), cost.cases) == kept
    [than, *_] = [*values.values(), (5, 5)]
    one = (Case((f"{than[0]} kg",), {}),)
    kept = tuple(name for name, both in values.items() if PYTHON[sign](both[0], than[0]))
    assert operate("where", [earned], (1,), Condition(sign, "{3}"), one) == kept


@given(st.sampled_from(list(SIGNS)), st.dictionaries(st.integers(1, 99).map(str), st.integers(1, 99)))
def test_where_compares_a_value_with_the_one_that_it_was_asked_about(sign: str, values: dict) -> None:
    operand = Operand(1, tuple(Case((str(value),), {0: name}) for name, value in values.items()))
    kept = tuple(name for name, value in values.items() if PYTHON[sign](value, int(name)))
    assert operate("where", [operand], (), Condition(sign, "{1}")) == kept


def test_a_condition_is_open_where_the_step_answers_nothing_or_several_values_about_the_same() -> None:
    earned = Operand(1, tuple(Case(("5",), {0: name}) for name in "AB"))
    for costs in ([("3",), ()], [("3", "4"), ("3",)], []):
        compared = [Case(cost, {0: name}) for name, cost in zip("AB", costs, strict=False) if cost]
        assert operate("where", [earned], (), Condition(">", "{3}"), compared) is None


@pytest.mark.parametrize(
    ("value", "sign", "than", "holds"),
    [
        ("12 May 1980", "=", "1980", True),
        ("12 May 1980", ">", "1980", False),
        ("1980", ">", "12 May 1980", None),
        ("1980", "=", "12 May 1980", None),
        ("5 km", ">", "4,000 m", True),
        ("5 km", ">", "4", True),
        ("5 km", ">", "4 kg", None),
        ("three", ">=", "3", True),
        ("American", "=", "USA", True),
        ("Ayr", "!=", "Bute", True),
        ("Ayr", ">", "5", None),
        ("07:40", "<", "9 am", True),
        ("19:40", "=", "7.40 pm", True),
        ("3.5", ">", "3.14", True),
        ("-5", "=", "5", False),
        ("$5 million", "=", "€5 million", None),
        ("$5 million", "=", "5,000,000", True),
        ("20 °C", "=", "68 °F", None),
        ("4.35 km", ">=", "4350 m", True),
        ("C#", "=", "C++", False),
        ("5 km", "!=", "5", False),
    ],
)
def test_a_condition_holds_where_all_that_a_value_may_mean_meets_it(
    value: str, sign: str, than: str, holds: bool | None
) -> None:
    assert meets(value, Condition(sign, than)) is holds


@given(st.integers(1, 400), st.sampled_from(["m", "km", "cm"]), st.integers(1, 400), st.sampled_from(["m", "km", "cm"]))
def test_signs_agree_with_one_another(one: int, unit: str, other: int, than: str) -> None:
    holds = {sign: meets(f"{one / 100} {unit}", Condition(sign, f"{other / 100} {than}")) for sign in SIGNS}
    assert [holds["<"], holds["="], holds[">"]].count(True) == 1
    assert holds["<="] == (holds["<"] or holds["="]) and holds[">="] == (holds[">"] or holds["="])
    assert holds["!="] is not holds["="]


def test_a_step_that_names_itself_gives_those_of_its_values_that_meet_the_condition() -> None:
    operand = Operand(1, (Case(("1975", "1991"), {0: "Alba"}), Case(("1970",), {0: "Cirrus"})))
    assert operate("where", [operand], (2,), Condition(">", "1985")) == ("1991",)
    assert operate("where", [operand], (1,), Condition(">", "1985")) == ("Alba",)


def test_a_value_that_may_or_may_not_meet_the_condition_leaves_the_whole_open() -> None:
    cases = tuple(Case((value,), {0: name}) for name, value in [("A", "1981"), ("B", "Ayr")])
    assert operate("where", [Operand(1, cases)], (), Condition(">", "1980")) is None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("U.S.", "American", True),
        ("5 km", "5,000 m", True),
        ("The Ayr", "ayr", True),
        ("Ayr", "Bute", False),
        ("Ayr", "Ayr, Scotland", None),
        ("1957", "May 1957", None),
        ("8 June 2021", "June 8, 2021", True),
        ("1957", "1958", False),
        ("5 km", "6 km", False),
    ],
)
def test_values_are_alike_in_what_both_say(one: str, other: str, alike: bool | None) -> None:
    assert are_alike(one, other) is alike and are_alike(other, one) is alike


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("sum", [["5 km"], ["5 kg"]]),
        ("max", [["5 km"], ["Ayr"]]),
        ("min", [["1957"], ["May 1957"]]),
        ("argmin", [["5 km", "6 km"], ["7 km"]]),
        ("difference", [["5"], ["6"], ["7"]]),
        ("equal", [["Ayr"], ["Ayr, Scotland"]]),
        ("judge", [["5"], ["6"]]),
    ],
)
def test_what_has_no_common_type_or_decides_nothing_is_left_to_the_judge(name: str, parts: list[list[str]]) -> None:
    assert do(name, parts) is None
