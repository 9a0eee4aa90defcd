from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from data_gen.annotate.names import find_mention, recase
from data_gen.annotate.plan import GoldStep, build_expression, find_shape, write_gold_plan
from data_gen.annotate.wording import ask, tidy
from data_gen.questions import DroppedError
from revelator.plans import bind, check, list_leaves, parse, to_letters


def chain(*references: tuple[int, ...]) -> list[GoldStep]:
    """Steps that refer to earlier ones (from 1), each with an answer of its own."""
    nouns = ("river", "county", "director", "award", "school", "year")
    return [
        GoldStep(
            f"Which {nouns[i]} is {' and '.join(f'#{r}' for r in used) or f'thing {i}'} of?", answers=(f"answer {i}",)
        )
        for i, used in enumerate(references)
    ]


@pytest.mark.parametrize(
    ("references", "letters"),
    [
        (((), (1,)), "A * B"),
        (((), (1,), (2,)), "A * B * C"),
        (((), (1,), (2,), (3,)), "A * B * C * D"),
        (((), (), (1, 2)), "(A + B) * C"),
        (((), (1,), (), (2, 3)), "(A * B + C) * D"),
        (((), (), (1, 2), (3,)), "(A + B) * C * D"),
        (((), ()), "A + B"),
        (((), (1,), (), (3,)), "A * B + C * D"),
        (((), (1,), (1,)), "A * (B + C)"),
        (((), (1,), (1,), (2, 3)), "A * (B + C) * D"),
        (((), (1,), (1, 2)), "A * B * C"),
    ],
)
def test_references_draw_the_shape(references: tuple[tuple[int, ...], ...], letters: str) -> None:
    assert to_letters(parse(write_gold_plan("Q?", chain(*references), "seed").expression)) == letters


@st.composite
def decompositions(draw: st.DrawFn) -> list[tuple[int, ...]]:
    count = draw(st.integers(1, 6))
    return [tuple(sorted(draw(st.sets(st.integers(1, i), max_size=2)) if i else set())) for i in range(count)]


@given(decompositions())
def test_every_step_is_one_leaf_and_stands_after_what_it_uses(references: list[tuple[int, ...]]) -> None:
    shape = find_shape({i: [r - 1 for r in used] for i, used in enumerate(references)})
    order = [int(leaf.text) for leaf in list_leaves(build_expression(shape, str))]
    assert sorted(order) == list(range(len(references)))
    assert all(order.index(r - 1) < order.index(i) for i, used in enumerate(references) for r in used)


@given(decompositions())
def test_a_plan_checks_and_binds_each_placeholder_to_the_step_it_was_made_from(
    references: list[tuple[int, ...]],
) -> None:
    steps = chain(*references)
    try:
        planned = write_gold_plan("Q?", steps, "seed")
    except DroppedError:
        return
    expression = parse(planned.expression)
    assert not check(expression)
    for leaf, sources, step in zip(list_leaves(expression), bind(expression).sources, planned.steps, strict=True):
        filled = re.sub(r"\{([^}]*)\}", lambda m: planned.steps[sources[m[1]]].answers[0], leaf.text)  # noqa: B023
        assert filled == step.question


def test_parts_that_ask_alike_reach_the_right_places() -> None:
    steps = [
        GoldStep(subject="Coach", relation="headquarters location", answers=("Yang",)),
        GoldStep(subject="Solar", relation="headquarters location", answers=("Nan",)),
        GoldStep("How long was #2 the capital of #1 ?", answers=("9 years",)),
    ]
    planned = write_gold_plan("How long was the city of Solar the capital of the city of Coach?", steps, "seed")
    assert planned.steps[-1].question == "How long was Nan the capital of Yang?"


def test_the_wording_nearest_to_the_question_is_taken() -> None:
    def worded(question: str, answer: str = "x") -> str:
        return ask("located in the administrative territorial entity", "Erla", answer, question, 5, "s")

    assert worded("Which county has Erla in it?") == "In which county is Erla located?"
    assert worded("What is the oldest college in the state that contains Erla?") == "In which state is Erla located?"
    assert worded("Who led the place of Erla?") in ("Where is Erla located?", "Where is Erla?")
    assert worded("Which state has Erla?", "Pima County") in ("Where is Erla located?", "Where is Erla?")


def test_a_relation_without_wordings_is_asked_for_plainly() -> None:
    assert ask("call sign", "KX", "a", "What is KX's call sign?", 0, "s") == "What is the call sign of KX?"


def test_every_wording_asks_a_question_about_its_subject() -> None:
    from importlib.resources import files

    wordings = yaml.safe_load(files("data_gen.annotate").joinpath("wordings.yaml").read_text(encoding="utf-8"))
    for relation, ways in wordings.items():
        for name, template in ways:
            assert template.count("{x}") == 1 and template.endswith("?"), relation
            assert re.fullmatch(r"[a-z]+", name), relation


@pytest.mark.parametrize(
    ("text", "tidied"),
    [
        ("who is #1 's father ?", "Who is #1's father?"),
        ("when did {a} , {b} and C meet", "When did {a}, {b} and C meet?"),
        ("Name a division of #1 .", "Name a division of #1."),
        ("Who wrote 'Reply' first", "Who wrote 'Reply' first?"),
    ],
)
def test_marks_are_mended_and_words_kept(text: str, tidied: str) -> None:
    assert tidy(text) == tidied


def test_names_are_found_in_the_spelling_of_the_question() -> None:
    assert find_mention("Jaulín", "Where is Jaulin?") == "Jaulin"
    assert find_mention("It's All", "Is It’S All new?") == "It’S All"
    assert find_mention("Ann", "Where is Annaberg?") is None
    assert recase("who won the indy race in may", "Where may the Indy Race be?") == "who won the Indy Race in may"


@given(st.text(min_size=1), st.text(), st.text())
def test_a_mention_is_a_part_of_the_text(name: str, before: str, after: str) -> None:
    text = f"{before} {name} {after}"
    found = find_mention(name, text)
    assert found is None or found in text
