"""Tree, JSON and letters."""

import pytest

from revelator.plans import draw_tree, make_letters_key, parse, to_json, to_letters


@pytest.mark.parametrize("shape", ["A", "A * (B + C)", "(A + B) * C * D", "A * B + C", "A * (B * C)"])
def test_letters_spell_the_shape(shape):
    assert to_letters(parse(shape)) == shape


def test_letters_beyond_z_carry_a_number():
    assert to_letters(parse(" + ".join(["q"] * 53))).split(" + ")[25:] == [
        "Z", *(f"{c}1" for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "A2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("A + B * C", "A * B + C", True),
        ("(A * B + C) * D", "(A + B * C) * D", True),
        ("A * (B + C * D)", "A * (B * C + D)", True),
        ("A * B * C", "A * (B * C)", False),
        ("A + B", "A * B", False),
        ("A + B", "A + B + C", False),
    ],
)
def test_keys_are_equal_up_to_the_order_of_plus(one, other, same):
    assert (make_letters_key(parse(one)) == make_letters_key(parse(other))) is same


def test_the_tree_shows_order_numbers_and_what_names_stand_for():
    assert draw_tree(parse("(A + B) * C {x}")).splitlines() == [
        "*  in order",
        "├─ +  in parallel",
        "│  ├─ 1  A",
        "│  └─ 2  B",
        "└─ 3  C {x}   [{x} is {1}]",
    ]
    assert draw_tree(parse("(A + B => union) * Which of {films} is 1 of {3*}? => count")).splitlines() == [
        "5  => count",
        "└─ *  in order",
        "   ├─ 3  => union",
        "   │  └─ +  in parallel",
        "   │     ├─ 1  A",
        "   │     └─ 2  B",
        "   └─ 4  Which of {films} is 1 of {3*}?   [{films} is {3}]",
    ]


def test_json_carries_spans_and_bindings():
    plan = to_json(parse("A * B {x}"))
    assert plan == {
        "schema": 2,
        "canonical": "A * B {x}",
        "numbered": "A * B {1}",
        "letters": "A * B",
        "leaves": 2,
        "root": {
            "kind": "dependent",
            "span": [0, 9],
            "left": {"kind": "atomic", "span": [0, 1], "step": 1, "letter": "A", "text": "A", "placeholders": []},
            "right": {
                "kind": "atomic",
                "span": [4, 9],
                "step": 2,
                "letter": "B",
                "text": "B {x}",
                "placeholders": [{"name": "x", "source": 1}],
            },
        },
    }
