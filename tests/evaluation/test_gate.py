"""The gate: no task falls by more than its margin and the mean rises, both by the paired bootstrap; floors without a
champion."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.gate.rules import RULES, Rules, build_verdict_table, judge, read_rules, render_text
from evaluation.gate.scores import DECIDING, PINNED, Scores, TaskScore
from revelator.errors import ConfigError

ROWS = 400
RULE = Rules(confidence=0.9, margins={"route": 0.04, "end": 0.02}, floors={"route": 0.4, "translate_bnf": 0.2})


def scores(**right: float) -> Scores:
    """Of each task's rows the first ones are right: two systems then differ on as few rows as they can."""
    return {task: scored(task, [float(i < share * ROWS) for i in range(ROWS)]) for task, share in right.items()}


def scored(task: str, values: list[float]) -> TaskScore:
    ids = tuple(f"q{i}/{task}/0" for i in range(len(values)))
    own = {DECIDING[task]: tuple(values)}
    return TaskScore(task, {DECIDING[task]: sum(values) / len(values)}, ids, own)


shares = st.dictionaries(st.sampled_from(list(DECIDING)), st.integers(1, 9).map(lambda n: n / 10), min_size=1)


@settings(max_examples=15)
@given(shares)
def test_a_challenger_equal_to_the_champion_falls_nowhere_but_does_not_rise(values: dict[str, float]) -> None:
    verdict = judge(scores(**values), scores(**values), RULE)
    assert all(c.passes for c in verdict.comparisons) and len(verdict.refusals) == 1
    assert "the mean over tasks is not shown to rise" in verdict.refusals[0]


@settings(max_examples=15)
@given(shares, st.data())
def test_one_task_that_falls_by_more_than_its_margin_shuts_the_gate_whatever_the_others_do(
    values: dict[str, float], data: st.DataObject
) -> None:
    task = data.draw(st.sampled_from(sorted(values)))
    champion = dict.fromkeys(values, 0.0) | {task: 0.5}
    challenger = dict.fromkeys(values, 1.0) | {task: 0.5 - 0.05}
    verdict = judge(scores(**challenger), scores(**champion), RULE)
    assert not verdict.passes and any(reason.startswith(task) for reason in verdict.refusals)


def test_each_task_has_its_own_margin() -> None:
    champion = scores(route=0.8, end=0.8, refine=0.2)
    open_ = judge(scores(route=0.78, end=0.8, refine=0.5), champion, RULE)
    assert open_.passes
    shut = judge(scores(route=0.8, end=0.78, refine=0.5), champion, RULE)
    assert [r.split(" ")[0] for r in shut.refusals] == ["end"] and "may fall by more than 0.02" in shut.refusals[0]
    shut = judge(scores(route=0.8, end=0.8, refine=0.19), champion, RULE)
    assert "refine equal falls from 0.200 to 0.190, by more than 0 " in shut.refusals[0]


def test_a_rise_that_so_few_rows_cannot_show_is_refused_with_its_interval() -> None:
    few = {"route": scored("route", [1.0] * 11 + [0.0] * 9)}, {"route": scored("route", [1.0] * 10 + [0.0] * 10)}
    refused = judge(*few, Rules(confidence=0.9, margins={"route": 0.5}, floors={}))
    assert refused.refusals == ["the mean over tasks is not shown to rise: 0.500 to 0.550 (+0.050 [+0.000, +0.100])"]
    assert judge(scores(route=0.55), scores(route=0.5), RULE).passes


def test_rows_are_compared_by_their_id_and_not_by_their_place() -> None:
    straight = scores(route=0.6)
    task = straight["route"]
    values = {name: own[::-1] for name, own in task.values.items()}
    turned = {"route": TaskScore("route", task.scores, task.ids[::-1], values)}
    change = judge(turned, straight, RULE).comparisons[0].change
    assert change is not None and (change.mean, change.low, change.high) == (0, 0, 0)


def test_what_the_champion_knew_may_not_be_forgotten_for_what_is_new() -> None:
    champion = scores(route=0.5) | {f"{PINNED}route": scored("route", [1.0] * ROWS)}
    challenger = scores(route=0.95) | {f"{PINNED}route": scored("route", [1.0] * 360 + [0.0] * 40)}
    verdict = judge(challenger, champion, RULE)
    assert verdict.change is not None and verdict.change.low > 0 and len(verdict.refusals) == 1
    assert "pinned/route accuracy falls from 1.000 to 0.900, by more than 0.04" in verdict.refusals[0]
    kept = challenger | {f"{PINNED}route": scored("route", [1.0] * ROWS)}
    assert judge(kept, champion, RULE).passes


def test_the_first_champion_needs_the_floors() -> None:
    assert judge(scores(route=0.4, translate_bnf=0.2), None, RULE).passes
    refused = judge(scores(route=0.4, translate_bnf=0.19), None, RULE)
    assert refused.refusals == ["translate_bnf letters 0.190 is under its floor 0.200"]


def test_the_table_shows_both_sides_the_interval_the_margin_and_what_failed() -> None:
    verdict = judge(scores(route=0.5, end=0.9), scores(route=0.8, end=0.9), RULE)
    text = render_text(build_verdict_table(verdict, "version 2", "champion 1"))
    route, end, mean = (next(line for line in text.splitlines() if name in line) for name in ("route", "end ", "mean"))
    assert "FAILED" in route and "-0.300 [" in route and "0.040" in route and "0.800" in route
    assert "passed" in end and "FAILED" in mean and "must rise" in mean


def test_the_shipped_rules_have_a_margin_and_a_floor_for_every_task_and_an_option_replaces_the_margins() -> None:
    assert set(read_rules(RULES).floors) == set(read_rules(RULES).margins) == set(DECIDING)
    assert set(read_rules(RULES, margin=0.1).margins.values()) == {0.1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("confidence: 7\nmargins: {}\nfloors: {}", "confidence = 7: "),
        ("confidence: 0.9\nmargins: {root: 0.1}\nfloors: {}", "margins = .*no such task: root"),
        ("confidence: 0.9\nmargins: {}\nfloors: {end: 2}", r"floors\.end = 2: .*less than or equal to 1"),
        ("margins", "a mapping is needed"),
    ],
)
def test_wrong_rules_name_the_field(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_rules(path)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rules(path)
