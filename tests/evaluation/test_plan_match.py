"""What counts as the right arguments, the right names and the right tree: worked by hand, and on the world's gold."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_gen.annotate.names import find_planned_names
from data_gen.questions import AnnotatedQuestion
from data_gen.sources.rows import read_world
from data_gen.world.generate import generate
from evaluation.metrics.plans import copies_names, have_equal_arguments, score_tree
from revelator.plans import list_leaves
from revelator.plans import parse as plan
from revelator.plans.art import Art, make_structure_key, parse, render
from revelator.plans.operators import Filter, Relate

QUESTION = "When was the spouse of the director of Tin Comet born, and who owns the label of Orn?"
NAMES = ["Tin Comet", "Orn"]
GOLD = plan(
    "Who directed Tin Comet? * Who is the spouse of {director}? * When was {spouse} born? "
    "+ What is the label of Orn? * Who owns {label}?"
)


@pytest.mark.parametrize(
    ("written", "arguments", "names"),
    [
        (  # other words, other placeholders, the parts of `+` turned round
            "Which is Orn's record company? * Who is the owner of {firm}? "
            "+ Who made Tin Comet? * Who is married to {maker}? * What is the birthday of {x}?",
            True,
            True,
        ),
        (  # two relations have changed places
            "Who is the spouse of Tin Comet? * Who directed {spouse}? * When was {director} born? "
            "+ What is the label of Orn? * Who owns {label}?",
            False,
            True,
        ),
        (  # the names have changed places
            "Who directed Orn? * Who is the spouse of {director}? * When was {spouse} born? "
            "+ What is the label of Tin Comet? * Who owns {label}?",
            False,
            True,
        ),
        (  # a leaf is fed by another one
            "Who directed Tin Comet? * Who is the spouse of {director}? * When was {director} born? "
            "+ What is the label of Orn? * Who owns {label}?",
            False,
            True,
        ),
        (  # one name is cut short
            "Who directed Comet? * Who is the spouse of {director}? * When was {spouse} born? "
            "+ What is the label of Orn? * Who owns {label}?",
            False,
            False,
        ),
        (  # a name is copied in small letters: found, but not exact
            "Who directed tin comet? * Who is the spouse of {director}? * When was {spouse} born? "
            "+ What is the label of Orn? * Who owns {label}?",
            True,
            False,
        ),
        (  # a name that nobody wrote
            "Who directed Tin Comet? * Who is the spouse of {director}? * When was {spouse} born in Marn? "
            "+ What is the label of Orn? * Who owns {label}?",
            False,
            True,
        ),
        ("Who directed Tin Comet? + What is the label of Orn?", False, True),
        ("Who directed Tin Comet? * What is the label of Orn?", False, True),  # does not check
    ],
)
def test_arguments_and_names(written: str, arguments: bool, names: bool) -> None:
    assert have_equal_arguments(plan(written), GOLD, NAMES) == arguments
    assert copies_names(plan(written), QUESTION, NAMES) == names


def test_a_gold_plan_matches_itself_and_no_plan_of_other_names(tmp_path: Path) -> None:
    generate(60, 4, tmp_path / "world")
    found = [q for q in read_world(tmp_path / "world") if isinstance(q, AnnotatedQuestion) and q.expression]
    for question in found:
        gold, names = plan(question.expression), find_planned_names(question)
        assert names and have_equal_arguments(gold, gold, names) and copies_names(gold, question.question, names)
        assert not copies_names(plan("Who is it?"), question.question, names)
        if len(list_leaves(gold)) > 1:
            assert not have_equal_arguments(list_leaves(gold)[0], gold, names)


HEADS = [Art("Who made A?", Relate("A", "by")), Art("Who made B?", Relate("B", "by"))]
OF_ONE, LAST = Art("Who bore [1]?", Relate("[1]", "mother")), Art("Are [2] and [3] alike?")


def whole(*children: Art) -> Art:
    return Art("Is it?", children=children)


def test_a_tree_is_its_operators_and_what_they_refer_to() -> None:
    gold = whole(HEADS[0], OF_ONE, HEADS[1], LAST)
    turned = whole(HEADS[0], HEADS[1], Art("Who bore [2]?", Relate("[2]", "m")), Art("So [1], [3]?"))
    others = [
        whole(HEADS[0], OF_ONE, HEADS[1], Art("Are [1] and [3] alike?")),
        whole(HEADS[0], Art("Who bore [1]?", Filter(("[1]",), "mother")), HEADS[1], LAST),
        whole(HEADS[0], Art("Who bore [1]?", Relate("A", "mother")), HEADS[1], LAST),
        whole(*HEADS, Art("[1] or [2]?")),
        whole(whole(HEADS[0]), OF_ONE, HEADS[1], LAST),
        HEADS[0],
    ]
    assert make_structure_key(turned) == make_structure_key(gold)
    assert len({make_structure_key(tree) for tree in [gold, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    ("output", "score"),
    [
        (render(whole(*HEADS)), (True, True, True)),
        (render(whole(*reversed(HEADS))), (True, True, False)),
        (render(whole(HEADS[0])), (True, False, False)),
        (render(whole(HEADS[0], Art("Is it [3]?"))), (False, False, False)),
        ('{"question": "Is it?"', (False, False, False)),
    ],
)
def test_a_written_tree_is_held_against_gold(output: str, score: tuple[bool, ...]) -> None:
    assert tuple(score_tree(output, parse(render(whole(*HEADS)))).values()) == score


NUMBERED = "(Who directed Jaws? * When was {1} born?) + (Who directed UHF? * When was {3} born?) => argmin {1} {3}"


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        (NUMBERED, True),
        ("(Who made UHF? * When was {maker} born?) + (Who made Jaws? * When was {3} born?) => argmin {1} {3}", True),
        ("(Who made UHF? * When was {1} born?) + (Who made Jaws? * When was {3} born?) => argmin {2} {4}", False),
        (NUMBERED.replace("argmin", "argmax"), False),
        (NUMBERED.removesuffix(" {1} {3}"), False),
        (NUMBERED.partition(" =>")[0], False),
        ("Who directed Jaws? * When was {a} born? + Who directed UHF? * When was {b} born? => argmin {1} {3}", True),
    ],
)
def test_the_operation_and_what_it_names_are_part_of_the_arguments(written: str, arguments: bool) -> None:
    assert have_equal_arguments(plan(written), plan(NUMBERED), ["Jaws", "UHF"]) == arguments
