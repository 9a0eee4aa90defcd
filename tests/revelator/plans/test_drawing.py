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


def test_the_tree_shows_order_letters_and_origins():
    assert draw_tree(parse("(A + B) * C {x}")).splitlines() == [
        "*  in order",
        "├─ +  in parallel",
        "│  ├─ A  A",
        "│  └─ B  B",
        "└─ C  C {x}   [{x} from A]",
    ]


def test_json_carries_spans_and_bindings():
    plan = to_json(parse("A * B {x}"))
    assert plan == {
        "schema": 1,
        "canonical": "A * B {x}",
        "letters": "A * B",
        "leaves": 2,
        "root": {
            "kind": "dependent",
            "span": [0, 9],
            "left": {"kind": "atomic", "span": [0, 1], "leaf": 0, "letter": "A", "text": "A", "placeholders": []},
            "right": {
                "kind": "atomic",
                "span": [4, 9],
                "leaf": 1,
                "letter": "B",
                "text": "B {x}",
                "placeholders": [{"name": "x", "source": 0}],
            },
        },
    }
