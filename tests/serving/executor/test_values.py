"""Dates, quantities and countries as answers write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.executor.operations import (
    Date,
    Quantity,
    country,
    is_value,
    normalise,
    number_text,
    parse_date,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("12 May 1957", Date(1957, 5, 12)),
        ("May 12, 1957", Date(1957, 5, 12)),
        ("born on Sept. 3, 2001 in Ayr", Date(2001, 9, 3)),
        ("2nd of May 1999.", Date(1999, 5, 2)),
        ("May 1957", Date(1957, 5)),
        ("c. 1957", Date(1957)),
        ("1957-05-12", Date(1957, 5, 12)),
        ("2001-12-31T00:00:00Z", Date(2001, 12, 31)),
        ("31/12/1999", Date(1999, 12, 31)),
        ("15 March 44 BC", Date(-43, 3, 15)),
        ("the 1950s", Date(1950, last=1959)),
        ("the 1900s", Date(1900, last=1999)),
        ("1990–1995", Date(1990, last=1995)),
        ("1990-95", Date(1990, last=1995)),
        ("3 May 1950 to 4 June 1951", Date(1950, 5, 3, last=1951)),
        ("1,957 people", None),
        ("1204.5 km", None),
        ("Area 51", None),
        ("Ayr", None),
    ],
)
def test_dates_are_read_in_many_forms(text, date):
    assert parse_date(text) == date


@given(st.dates())
def test_every_date_reads_back_from_its_forms(day):
    expected = Date(day.year, day.month, day.day)
    assert parse_date(day.isoformat()) == expected
    assert parse_date(f"{day.day} {day:%B} {day.year:04}") == expected
    if day.year >= 100:
        assert parse_date(f"{day:%b} {day.day}, {day.year}") == expected


@given(st.dates(), st.dates())
def test_dates_order_as_the_calendar_does(a, b):
    first, second = Date(a.year, a.month, a.day), Date(b.year, b.month, b.day)
    assert first.before(second) == (None if a == b else a < b)


def test_dates_that_cannot_be_told_apart_are_not_ordered():
    assert Date(1957).before(Date(1957, 5)) is None
    assert Date(1957, 4).before(Date(1957, 5, 1)) is True
    decade = parse_date("the 1950s")
    assert decade.before(Date(1955)) is None and Date(1959, 1, 1).before(decade) is None
    assert decade.before(Date(1960)) is True and decade.before(Date(1949)) is False


@pytest.mark.parametrize(
    ("text", "quantity"),
    [
        ("1,204 km", Quantity(1_204_000, "length")),
        ("about 1 204 567 inhabitants", Quantity(1_204_567)),
        ("3.5 million", Quantity(3_500_000)),
        ("$3.2 billion", Quantity(3_200_000_000, "dollar")),
        ("48%", Quantity(48, "percent")),
        ("12 km²", Quantity(12_000_000, "area")),
        ("2 hours 10 minutes", Quantity(7800, "time")),
        ("120 min", Quantity(7200, "time")),
        ("twenty-one", Quantity(21)),
        ("three million two hundred and five thousand", Quantity(3_205_000)),
        ("-5", Quantity(-5)),
        ("minus five", Quantity(-5)),
        ("£5 million", Quantity(5_000_000, "sterling")),
        ("two hours", Quantity(7200, "time")),
        ("none", None),
    ],
)
def test_quantities_are_read_with_their_units(text, quantity):
    assert parse_quantity(text) == quantity


@pytest.mark.parametrize(
    "text",
    [
        "1,5 million",
        "1/2",
        "5'11\"",
        "3-5 km",
        "3 to 5 km",
        "5.97 × 10^24 kg",
        "two hours ten minutes",
        "3 May 1950",
        "1990–1995",
        "$1" + "bn." * 60,
        "9" * 400,
    ],
)
def test_a_number_that_goes_on_as_something_else_or_without_bounds_is_not_read_in_part(text):
    assert parse_quantity(text) is None


@given(st.text("1-,.'$m²", min_size=201, max_size=400))
def test_a_text_longer_than_a_value_is_none(text):
    assert (parse_date(text), parse_quantity(text), is_value(text)) == (None, None, False)


def test_white_space_is_one_space_however_much_there_is():
    assert parse_quantity("1" + " " * 100_000 + "km") == Quantity(1000, "length")
    assert parse_date("12" + "\n" * 100_000 + "May 1957") == Date(1957, 5, 12)


def test_feet_and_inches_add_up():
    assert parse_quantity("6 ft 2 in").value == pytest.approx(1.8796)
    assert parse_quantity("12 square miles").value == pytest.approx(31_079_857, rel=1e-6)


@given(st.integers(0, 10**15))
def test_whole_numbers_read_back_with_and_without_separators(number):
    assert parse_quantity(f"{number:,}") == parse_quantity(str(number)) == Quantity(float(number))
    assert number_text(float(number)) == f"{number:,}"


def test_a_country_its_adjective_and_its_short_forms_are_one():
    assert country("U.S.") == country("American") == country("the United States") == country("USA")
    assert country("India") == country("Indian") != country("Indonesian")


def test_normalised_answers_leave_out_case_accents_marks_and_articles():
    assert normalise("The Café, Ltd.") == "cafe ltd"
    assert normalise("The The") == "the the"


@pytest.mark.parametrize(
    "text",
    [
        "1950", "3 May 1950", "c. 44 BC", "the 1950s", "1,204 km", "6 ft 2 in", "$3.5 million", "twenty-one", "95 %",
        "12 km²", "1,204 pages", "3.5 million inhabitants", "two studio albums",
    ],
)  # fmt: skip
def test_a_text_that_is_nothing_but_a_date_or_a_quantity_is_a_value(text):
    assert is_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "Apollo 13", "Route 66", "May", "the year", "", "Fahrenheit 451", "Ann, 61",
        "Mars 3", "12 Monkeys", "one of them", "a film of 1984", "12 (2010 census)", "5'11\"",
    ],
)  # fmt: skip
def test_a_name_with_a_number_in_it_is_no_value(text):
    assert not is_value(text)
