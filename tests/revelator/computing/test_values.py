"""Dates, quantities and countries as answers write them."""

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.computing.comparisons import find_extremes
from revelator.computing.values import (
    UNITS,
    Date,
    is_value,
    normalise,
    normalise_country,
    parse_clock,
    parse_date,
    parse_quantity,
    says_value,
    write_number,
    write_quantity,
)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("12 May 1957", Date(1957, 5, 12)),
        ("May 12, 1957", Date(1957, 5, 12)),
        ("on Sept. 3, 2001", Date(2001, 9, 3)),
        ("2nd of May 1999.", Date(1999, 5, 2)),
        ("May 1957", Date(1957, 5)),
        ("c. 1957", Date(1957)),
        ("in the year 950", Date(950)),
        ("1957-05-12", Date(1957, 5, 12)),
        ("2001-12-31T00:00:00Z", Date(2001, 12, 31)),
        ("31/12/1999", Date(1999, 12, 31)),
        ("15 March 44 BC", Date(-43, 3, 15)),
        ("AD 44", None),
        ("44 AD", Date(44)),
        ("30 February 1950", None),
        ("12 May 57", None),
        ("the 1950s", None),
        ("1990–1995", None),
        ("3 May 1950 or 4 June 1951", None),
        ("born in 1957", None),
        ("1,957", None),
        ("1,957 people", None),
        ("1204.5 km", None),
        ("Area 51", None),
        ("90", None),
        ("Ayr", None),
    ],
)
def test_dates_are_read_in_many_forms_as_a_whole_or_not_at_all(text, date):
    assert parse_date(text) == date


@given(st.dates())
def test_every_date_reads_back_from_its_forms(day):
    expected = Date(day.year, day.month, day.day)
    assert parse_date(day.isoformat()) == expected
    if day.year >= 100:
        assert parse_date(f"{day.day} {day:%B} {day.year}") == expected
        assert parse_date(f"{day:%b} {day.day}, {day.year}") == expected


@given(st.dates(), st.dates(), st.integers(0, 20_000))
def test_dates_order_as_the_calendar_does_in_any_age(a, b, earlier):
    first, second = (Date(day.year - earlier, day.month, day.day) for day in (a, b))
    assert (first.days < second.days) == (a < b) and (first.days == second.days) == (a == b)


@given(st.dates(), st.dates())
def test_the_days_between_dates_are_those_of_the_calendar(a, b):
    first, second = (Date(day.year, day.month, day.day) for day in (a, b))
    assert second.days[0] - first.days[0] == (b - a).days


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [("1957", "May 1957", []), ("May 1957", "31 May 1957", []), ("April 1957", "1 May 1957", [0]),
     ("December 1957", "30 November 1957", [1])],
)  # fmt: skip
def test_dates_that_cannot_be_told_apart_are_not_ordered(one, other, least):
    assert find_extremes([one, other], greatest=False) == least


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("1,204 km", 1204, "km"),
        ("about 1 204 567 inhabitants", 1_204_567, ""),
        ("3.5 million", 3_500_000, ""),
        ("$3.2 billion", 3_200_000_000, "dollar"),
        ("48%", 48, "percent"),
        ("12 km²", 12, "km ** 2"),
        ("3,379 square kilometres", 3379, "km ** 2"),
        ("100 km/h", 100, "km / hour"),
        ("64 GB", 64_000, "MB"),
        ("2.5 kWh", 2500, "Wh"),
        ("21 °C", 21, "celsius"),
        ("750 ml", 0.75, "litre"),
        ("2 hours 10 minutes", 130, "min"),
        ("two hours and ten minutes", 130, "min"),
        ("120 min", 120, "min"),
        ("61 years old", 61, "year"),
        ("0.4 km high", 400, "m"),
        ("twenty-one", 21, ""),
        ("three million two hundred and five thousand", 3_205_000, ""),
        ("two dozen", 24, ""),
        ("-5", -5, ""),
        ("minus five", -5, ""),
        ("£5 million", 5_000_000, "sterling"),
    ],
)
def test_quantities_are_read_with_their_units(text, number, unit):
    quantity = parse_quantity(text)
    assert quantity.to(unit).magnitude == pytest.approx(number)


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "hundreds",
        "1,5 million",
        "1/2",
        "5'11\"",
        "3-5 km",
        "3 to 5 km",
        "3 km 5 km",
        "5.97 × 10^24 kg",
        "3 May 1950",
        "1990–1995",
        "the 1950s",
        "5 pm",
        "$1" + "bn." * 60,
        "9" * 400,
    ],
)
def test_a_number_that_goes_on_as_something_else_or_without_bounds_is_not_read_in_part(text):
    assert parse_quantity(text) is None


@given(st.text("1-,.'$m²", min_size=201, max_size=400))
@settings(max_examples=20)
def test_a_text_longer_than_a_value_is_none(text):
    assert (parse_date(text), parse_quantity(text), is_value(text)) == (None, None, False)


@given(st.text("1290-,.'$%/²* kmsinft", max_size=30))
def test_any_text_is_a_finite_quantity_or_none(text):
    quantity = parse_quantity(text)
    assert quantity is None or abs(quantity.to_base_units().magnitude) < float("inf")


def test_white_space_is_one_space_however_much_there_is():
    assert parse_quantity("1" + " " * 100_000 + "km") == UNITS.Quantity(1, "km")
    assert parse_date("12" + "\n" * 100_000 + "May 1957") == Date(1957, 5, 12)


def test_feet_and_inches_add_up():
    assert parse_quantity("6 ft 2 in").to("metre").magnitude == pytest.approx(1.8796)
    assert parse_quantity("12 square miles").to("metre ** 2").magnitude == pytest.approx(31_079_857, rel=1e-6)


@given(st.integers(0, 10**15))
def test_whole_numbers_read_back_with_and_without_separators(number):
    assert parse_quantity(f"{number:,}") == parse_quantity(str(number)) == UNITS.Quantity(float(number))
    assert write_number(float(number)) == f"{number:,}"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("07:40", 460),
        ("at 7.40 p.m.", 1180),
        ("6 am", 360),
        ("12:05 AM", 5),
        ("7", None),
        ("24:10", None),
        ("1998", None),
    ],
)
def test_a_time_of_the_day_is_read_as_a_whole_or_not_at_all(text: str, minutes: int | None) -> None:
    assert parse_clock(text) == minutes


@pytest.mark.parametrize(
    ("like", "written"),
    [
        ("6,650 km", "250 km"),
        ("3.5 million km", "250 km"),
        ("12 kilometres", "250 kilometres"),
        ("1,000 m", "250,000 m"),
        ("2 m 30 cm", "250,000 m"),
        ("two miles", "155.342798 miles"),
    ],
)
def test_a_quantity_is_written_as_the_answers_write_theirs(like, written):
    assert write_quantity(UNITS.Quantity(250, "km"), like) == written


def test_a_country_its_adjective_and_its_short_forms_are_one():
    assert len({normalise_country(name) for name in ("U.S.", "American", "the United States", "USA")}) == 1
    assert normalise_country("India") == normalise_country("Indian") != normalise_country("Indonesian")


def test_normalised_answers_leave_out_case_accents_marks_and_articles():
    assert normalise("The Café, Ltd.") == "cafe ltd"
    assert normalise("The The") == "the the"


@pytest.mark.parametrize(
    "text",
    [
        "1950", "3 May 1950", "c. 44 BC", "1,204 km", "6 ft 2 in", "$3.5 million", "twenty-one", "95 %",
        "12 km²", "1,204 pages", "3.5 million inhabitants", "two studio albums",
    ],
)  # fmt: skip
def test_a_text_that_is_nothing_but_a_date_or_a_quantity_is_a_value(text):
    assert is_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "Apollo 13", "Route 66", "May", "the year", "", "Fahrenheit 451", "Ann, 61",
        "Mars 3", "12 Monkeys", "8 Mile", "the 1950s", "one of them", "a film of 1984", "12 (2010 census)", "5'11\"",
    ],
)  # fmt: skip
def test_a_name_with_a_number_in_it_is_no_value(text):
    assert not is_value(text)


DATE_FORMS = ("%d %B %Y", "%B %d, %Y", "%Y-%m-%d", "%d %b %Y", "%d/%m/%Y")


@given(st.dates(min_value=date(1000, 1, 1)), st.sampled_from(DATE_FORMS), st.sampled_from(DATE_FORMS), st.dates())
def test_a_text_says_a_date_in_whatever_form_and_no_other_date(day: date, form: str, other: str, another: date) -> None:
    text = f"It opened on {day.strftime(form)}, a holiday."
    assert says_value(text, day.strftime(other))
    assert says_value(text, f"{day:%B %Y}") and not says_value(f"It opened in {day:%B %Y}.", day.strftime(other))
    assert day == another or another.year < 1000 or not says_value(text, another.strftime(other))


@given(st.integers(1000, 10**12), st.integers(1000, 10**12), st.sampled_from(["euros", "kilograms", "pages"]))
def test_a_text_says_a_number_with_and_without_separators_and_no_other(number: int, other: int, unit: str) -> None:
    for text in (f"Grant: Alpha; {unit.capitalize()} a year: {number}; Members: 3", f"It is {number:,} {unit}, or so."):
        assert all(says_value(text, form) for form in (f"{number:,} {unit}", f"{number} {unit}", f"{number:,}"))
        assert number == other or not says_value(text, f"{other:,} {unit}")
        assert not says_value(text, f"{number} miles")


@pytest.mark.parametrize(
    ("text", "answer", "said"),
    [
        ("Grant: Alpha; Euros a year: 4500; Members: 300", "4,500 euros a year", True),
        ("Grant: Alpha; Euros a year: 4500; Members: 300", "€4,500", True),
        ("Grant: Alpha; Euros a year: 4500; Members: 300", "300 euros", False),
        ("It has twenty-one pages.", "21", True),
        ("It took 130 minutes.", "2 hours and 10 minutes", True),
        ("Apollo 11 landed.", "Apollo 12", False),
        ("He left.", "Ayr", False),
    ],
)
def test_a_unit_may_stand_in_the_clause_of_its_number(text: str, answer: str, said: bool) -> None:
    assert says_value(text, answer) is said
