"""Which result a placeholder takes."""

import pytest

from revelator.plans import bind, parse


def sources(text):
    return [dict(inputs) for inputs in bind(parse(text)).sources]


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("Who directed UHF? * When was {director} born?", {"director": 0}),
        ("(Where was Bo born? + When was Al born?) * What happened in {city} in {year}?", {"city": 0, "year": 1}),
        ("Who is Bo's father? * Where was {father} born? * When did {father} die?", {"father": 0}),
        ("(Who directed Jaws? + Who directed Alien?) * {director1} or {director2}?", {"director1": 0, "director2": 1}),
        ("(Who directed Jaws? + Who directed Alien?) * Where was {director} born?", {"director": 0}),
        ("Which film won? * Who directed {film}? * Is {film} by {director} good?", {"film": 0, "director": 1}),
    ],
)
def test_a_name_takes_a_result_of_its_left_or_stands_for_what_it_stood_for(text, last):
    assert sources(text)[-1] == last


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(A + B) * C {x} {y}", [{}, {}, {"x": 0, "y": 1}]),
        ("(A + B) * C {y} {x}", [{}, {}, {"y": 0, "x": 1}]),
        ("A * B {x} * C {y}", [{}, {"x": 0}, {"y": 1}]),
        ("A * B {x} * C {x}", [{}, {"x": 0}, {"x": 0}]),
        ("A * B {x} * C {x} {y}", [{}, {"x": 0}, {"x": 0, "y": 1}]),
        ("A * (B {x} * C {x})", [{}, {"x": 0}, {"x": 1}]),
        ("A * (B {x} + C {x})", [{}, {"x": 0}, {"x": 0}]),
        ("A * (B {x} * C {y})", [{}, {"x": 0}, {"y": 1}]),
        ("A * (B * C {x})", [{}, {}, {"x": 1}]),
        ("A * (B * C {x} {y})", [{}, {}, {"x": 1, "y": 0}]),
        ("(A * B {x} + C) * D {p} {q}", [{}, {"x": 0}, {}, {"p": 1, "q": 2}]),
    ],
)
def test_new_names_take_results_by_place_whatever_they_are_called(text, expected):
    assert sources(text) == expected


def test_the_example_of_the_paper_binds_rightly():
    text = (
        "(Which continent is Aruba in? + Which country is Prazeres in?) * Which colonial holding in {continent} was"
        " governed by {country}? * How many Germans live in {colonial_holding}?"
    )
    assert sources(text) == [{}, {}, {"continent": 0, "country": 1}, {"colonial_holding": 2}]


def test_a_placeholder_without_a_producer_is_left_out():
    assert sources("A {x} + B") == [{}, {}]
