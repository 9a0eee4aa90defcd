"""The gate: every task within the margin, the mean not lower; floors when there is no champion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.gate import RULES, Rules, as_text, judge, read_rules, verdict_table
from evaluation.scores import DECIDING, Scores, TaskScore
from revelator.errors import ConfigError

RULE = Rules(margin=0.02, floors={"route": 0.4, "translate_bnf": 0.2})


def scores(**values: float) -> Scores:
    return {task: TaskScore(task, 50, {DECIDING[task]: value}, (), {}) for task, value in values.items()}


shares = st.dictionaries(st.sampled_from(list(DECIDING)), st.integers(0, 50).map(lambda n: n / 50), min_size=1)


@given(shares)
def test_a_challenger_equal_to_the_champion_passes(values: dict[str, float]) -> None:
    assert judge(scores(**values), scores(**values), RULE).passed


@given(shares, st.data())
def test_one_task_that_falls_by_more_than_the_margin_shuts_the_gate_whatever_the_others_do(
    values: dict[str, float], data: st.DataObject
) -> None:
    task = data.draw(st.sampled_from(sorted(values)))
    champion = dict.fromkeys(values, 0.0) | {task: 0.5}
    challenger = dict.fromkeys(values, 1.0) | {task: 0.5 - 0.021}
    verdict = judge(scores(**challenger), scores(**champion), RULE)
    assert not verdict.passed and any(task in reason for reason in verdict.refusals)


def test_a_fall_within_the_margin_passes_only_if_the_mean_holds() -> None:
    champion = scores(route=0.8, end=0.8)
    assert judge(scores(route=0.79, end=0.82), champion, RULE).passed
    refused = judge(scores(route=0.79, end=0.80), champion, RULE)
    assert refused.refusals == ("the mean over tasks falls from 0.800 to 0.795",)


def test_the_first_champion_needs_the_floors() -> None:
    assert judge(scores(route=0.4, translate_bnf=0.2), None, RULE).passed
    refused = judge(scores(route=0.4, translate_bnf=0.19), None, RULE)
    assert refused.refusals == ("translate_bnf letters 0.190 is under its floor 0.200",)


def test_the_table_marks_what_failed() -> None:
    verdict = judge(scores(route=0.5, end=0.9), scores(route=0.8, end=0.9), RULE)
    text = as_text(verdict_table(verdict, "version 2", "champion 1"))
    route, end, mean = (next(line for line in text.splitlines() if name in line) for name in ("route", "end ", "mean"))
    assert "FAILED" in route and "0.780" in route
    assert "passed" in end and "FAILED" in mean


def test_the_shipped_rules_have_a_floor_for_every_task_and_a_margin_that_an_option_replaces() -> None:
    assert set(read_rules(RULES).floors) == set(DECIDING)
    assert read_rules(RULES, margin=0.1).margin == 0.1


def test_wrong_rules_name_the_field(tmp_path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("margin: 7\nfloors: {}")
    with pytest.raises(ConfigError, match=r"margin: .*\(given: 7\)"):
        read_rules(path)
    path.unlink()
    with pytest.raises(ConfigError, match="an example: "):
        read_rules(path)
