"""Bootstrap intervals: their laws, and how often they cover the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.metrics.bootstrap import RESAMPLES, bootstrap, bootstrap_auc, bootstrap_ratio
from revelator.scores import roc_auc

VALUES = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@settings(max_examples=50)
@given(VALUES)
def test_the_interval_lies_within_the_values(values: list[float]) -> None:
    interval = bootstrap(values, resamples=200)
    slack = 1e-9
    assert min(values) - slack <= interval.low <= interval.high <= max(values) + slack
    assert interval.mean == pytest.approx(np.mean(values))
    assert interval.n == len(values)


def test_equal_seeds_give_equal_intervals_and_others_differ() -> None:
    values = np.random.default_rng(3).random(50)
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1)
    assert bootstrap(values, seed=1) != bootstrap(values, seed=2)


def test_a_constant_has_an_interval_of_no_width() -> None:
    interval = bootstrap([0.25] * 40)
    assert (interval.low, interval.mean, interval.high) == (0.25, 0.25, 0.25)


def test_more_rows_narrow_the_interval() -> None:
    rng = np.random.default_rng(0)
    few, many = bootstrap(rng.random(20)), bootstrap(rng.random(2000))
    assert many.high - many.low < (few.high - few.low) / 5


def test_no_rows_give_nan() -> None:
    interval = bootstrap([])
    assert interval.n == 0
    assert math.isnan(interval.mean)


def test_95_percent_intervals_cover_the_true_share_about_95_times_in_100() -> None:
    rng = np.random.default_rng(11)
    intervals = [bootstrap(rng.random(200) < 0.3, resamples=500, seed=i) for i in range(300)]
    covered = np.mean([i.low <= 0.3 <= i.high for i in intervals])
    assert 0.90 <= covered <= 0.99


def test_rows_of_one_question_that_agree_widen_the_interval_when_grouped() -> None:
    answers = np.repeat(np.random.default_rng(5).random(50) < 0.5, 10)
    groups = [f"q{i // 10}" for i in range(500)]
    rows, grouped = bootstrap(answers), bootstrap(answers, groups=groups)
    assert grouped.mean == rows.mean
    assert grouped.high - grouped.low > 2.5 * (rows.high - rows.low)


def test_groups_of_one_row_change_nothing_but_the_draws() -> None:
    values = np.random.default_rng(9).random(300)
    alone = bootstrap(values)
    grouped = bootstrap(values, groups=[str(i) for i in range(300)])
    assert grouped.low == pytest.approx(alone.low, abs=0.01)
    assert grouped.high == pytest.approx(alone.high, abs=0.01)


def test_groups_must_name_every_row() -> None:
    with pytest.raises(ValueError, match="3 values and 2 groups"):
        bootstrap([1.0, 0.0, 1.0], groups=["a", "b"])


def test_the_interval_of_an_area_is_that_of_the_areas_of_drawn_rows() -> None:
    rng = np.random.default_rng(4)
    truth = np.arange(30) % 3 == 0
    scores = np.round(truth * 0.3 + rng.random(30), 1)  # with ties
    interval = bootstrap_auc(scores, truth)
    drawn = np.random.default_rng(0).integers(0, 30, size=(RESAMPLES, 30))[:2_000]
    low, high = np.nanquantile([roc_auc(scores[rows], truth[rows]) for rows in drawn], [0.025, 0.975])
    assert (interval.mean, interval.n) == (roc_auc(scores, truth), 30)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=0.03), pytest.approx(high, abs=0.03))


def test_the_area_of_one_class_alone_is_unknown() -> None:
    for truth in ([], [True], [False, False]):
        assert math.isnan(bootstrap_auc(np.zeros(len(truth)), truth).mean)


def test_a_ratio_over_ones_is_a_mean() -> None:
    values = np.random.default_rng(3).random(50)
    ours, theirs = bootstrap_ratio(values, np.ones(50)), bootstrap(values)
    assert vars(ours) == pytest.approx(vars(theirs))
    assert bootstrap_ratio([2, 0], [4, 4]).mean == 0.25 and bootstrap_ratio([], []).n == 0
