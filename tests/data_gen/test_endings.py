"""How questions end: which ending the gold answers of a comparison say, and that its plan gives the gold answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.operations import is_right
from data_gen.annotate.endings import SIGNS, UNSAID, Branch, choose_ending, end_plan
from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.questions import ENDINGS, AnnotatedQuestion, DroppedError
from data_gen.sources.multi_hop import read_two_wiki
from data_gen.sources.rows import read_world
from data_gen.world.generate import generate
from revelator.plans import check, parse, render
from revelator.plans.operations import OPERATIONS

DAYS = st.lists(st.dates(date(1000, 1, 1)), min_size=2, max_size=3, unique=True)
NAMES = ["Salt Road", "The Blue Kiln", "Ember Lane"]
MAKERS = ["Mila Tross", "Eno Vard", "Ria Sol"]


def write_day(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def compare(values: Sequence[tuple[str, ...]], makers: Sequence[str] = ()) -> list[Branch]:
    first = [((maker,),) for maker in makers] or [()] * len(values)
    return [Branch(name, (*before, value)) for name, before, value in zip(NAMES, first, values, strict=False)]


@given(DAYS, st.sampled_from([("argmin", min), ("argmax", max)]))
def test_who_has_the_first_or_the_last_date_ends_so(days: list[date], end: tuple[str, Any]) -> None:
    name, choose = end
    best = days.index(choose(days))
    said = [(write_day(day),) for day in days]
    assert choose_ending(compare(said), NAMES[best]) == name
    assert choose_ending(compare(said, MAKERS), MAKERS[best]) == name
    assert choose_ending(compare(said, MAKERS), NAMES[best]) == f"{name}_source"


@given(st.tuples(*[st.integers(1, 90)] * 2).filter(lambda ages: ages[0] != ages[1]), st.integers(1000, 1900))
def test_who_lived_longer_is_told_by_the_differences_and_not_by_the_dates(ages: tuple[int, int], born: int) -> None:
    said = [str(year) for age in ages for year in (born, born + age)]
    lives = [Branch(name, ((value,),)) for name, value in zip(["Orn", "Orn", "Ada", "Ada"], said, strict=True)]
    assert choose_ending(lives, "Orn" if ages[0] > ages[1] else "Ada") == "argmax_difference"


@pytest.mark.parametrize(
    ("values", "gold", "ending"),
    [
        ([("Norway",), ("Chile",)], "no", "equal"),
        ([("U.S.",), ("American",)], "yes", "equal"),
        ([("Norway", "Chile"), ("Chile",)], "yes", "equal"),  # the same in part: left to the judge as the plan is run
        ([("Norway",), ("Chile",)], "yes", "unknown"),
        ([("Mila Tross",), ("Eno Vard", "Ria Sol")], "The Blue Kiln", "unknown"),  # that it has more may be chance
        ([("1986",), ("1987", "1988")], "Salt Road", "unknown"),
        ([("1986",), ("1986",)], "Salt Road", "unknown"),
        ([("1986",), ("1987",)], "Elsewhere", "unknown"),
    ],
)
def test_the_gold_answer_decides_and_what_it_leaves_open_is_unknown(
    values: list[tuple[str, ...]], gold: str, ending: str
) -> None:
    assert choose_ending(compare(values), gold) == ending


@pytest.mark.parametrize("names", [["Orn"], ["Orn", "Orn", "Ada"], ["Orn", "Ada", "Orn", "Ada"]])
def test_what_is_not_compared_side_by_side_or_in_twos_is_unknown(names: list[str]) -> None:
    values = ["1900", "1980", "1910", "1999"]
    found = [Branch(name, ((value,),)) for name, value in zip(names, values, strict=False)]
    assert choose_ending(found, "Orn") == choose_ending(found[:1], "yes") == "unknown"


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_said_by_operations_or_given_up_with_its_reason(ending: str) -> None:
    plan = parse("A? * B {b}? + C? * D {d}?")
    if ending.endswith("_difference"):
        plan = parse("A? + B? + C? + D?")
    if ending in UNSAID:
        with pytest.raises(DroppedError, match=re.escape(UNSAID[ending])):
            end_plan(plan, ending)
        return
    name, _, of = ending.partition("_")
    ended = end_plan(plan, f"{ending} 1980" if of in SIGNS else ending)
    said = re.findall(r"=> (\w+)", render(ended))
    assert check(ended) == () and set(said) <= set(OPERATIONS)
    assert set(said) == (
        {name, "where" if of in SIGNS else of} - {"none", "list", "both", "source", "last", "which", ""}
    )


def test_what_meets_a_condition_is_named_or_counted() -> None:
    films = parse("Which films? * When did {film} open?")
    kept = "Which films? * When did {1} open? => where {1} > 12 May 1980"
    assert render(end_plan(films, "which_after 12 May 1980")) == kept
    assert render(end_plan(films, "count_after 12 May 1980")) == f"({kept}) => count"
    assert render(end_plan(films, "which_is red")).endswith("=> where {1} = red")


def test_the_value_that_is_asked_for_is_named_by_the_number_of_its_step() -> None:
    assert render(end_plan(parse("A? * B {b}? + C? * D {d}?"), "argmin")).endswith("=> argmin {1} {3}")
    assert render(end_plan(parse("A? * B {b}? + C? * D {d}?"), "argmin_source")).endswith("=> argmin")


@pytest.mark.parametrize(
    ("plan", "judged"),
    [
        ("How old is Ada? * Is {age} over forty?", "How old is Ada? => judge"),
        ("A? + B? * Is {a} before {b}?", "A? + B? => judge"),
        ("A? * B {a}? * Is {b} a bird?", "A? * B {1}? => judge"),
        ("A? + (B? * Is {b} old?)", "A? + B? => judge"),
        ("(A? * B {a}? + C?) * Is {b} in {c}?", "A? * B {1}? + C? => judge"),
    ],
)
def test_what_the_last_question_asks_of_the_others_is_left_to_the_judge(plan: str, judged: str) -> None:
    assert end_plan(parse(plan), "judge_last") == parse(judged)


@pytest.mark.parametrize("plan", ["Is Ada old?", "A? + Is Ada old?"])
def test_a_last_question_that_takes_no_answer_is_no_judgement(plan: str) -> None:
    with pytest.raises(DroppedError, match="asks of no answer before it"):
        end_plan(parse(plan), "judge_last")


async def test_a_plan_with_its_ending_gives_the_gold_answer_of_its_question(tmp_path: Path, two_wiki: Path) -> None:
    generate(300, 5, tmp_path / "w", routes=["complex"])
    asked = [q for q in [*read_world(tmp_path / "w"), *read_two_wiki(two_wiki)] if isinstance(q, AnnotatedQuestion)]
    said = [q for q in asked if q.expression and q.ending and q.ending.partition(" ")[0] not in UNSAID]
    assert len(said) > 200
    assert [q.question for q in said if not await is_right(q, end_plan(parse(q.expression), q.ending))] == []


def test_a_set_says_the_endings_and_has_no_plan_where_none_says_its_own(tmp_path: Path, write, two_wiki_rows) -> None:
    tie = {**two_wiki_rows[1], "_id": "t", "question": "Which is older, Orn Fell or Lake Sedge?", "answer": "Orn Fell"}
    path = write("w.jsonl", [*two_wiki_rows, tie])
    source = {"format": "2wiki", "path": str(path), "sub_questions": 0, "tasks": ["translate_bnf"]}
    manifest = build(SetConfig.model_validate({"name": "t", "sources": [source]}), tmp_path / "set")
    shapes = Counter[str]()
    for counts in manifest["counts"]["shape"].values():
        shapes.update(counts)
    assert sum(shapes.values()) == len(two_wiki_rows) and any("=> argmin" in shape for shape in shapes)
