"""The calibration of a reader: the probability that a passage answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from revelator.errors import DataError
from training.reader import calibrate


def test_calibration_recovers_the_probabilities_of_its_rows() -> None:
    random = np.random.default_rng(0)
    margins = random.normal(size=20_000) * 3
    truth = 1 / (1 + np.exp(-(0.8 * margins - 0.5)))
    found = calibrate(margins, random.random(20_000) < truth)
    assert (found.weight, found.bias) == pytest.approx((0.8, -0.5), abs=0.06)


def test_a_larger_margin_never_makes_an_answer_less_likely() -> None:
    assert calibrate([-2.0, -1.0, 1.0, 2.0], [True, True, False, False]).weight == 0.0


def test_calibration_of_separable_rows_stays_finite() -> None:
    found = calibrate([10.0] * 5 + [-10.0] * 5, [True] * 5 + [False] * 5)
    assert math.isfinite(found.weight) and math.isfinite(found.bias)
    assert found.estimate(10) > 0.9 > 0.1 > found.estimate(-10)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_calibration_on_numbers_that_are_none_is_refused(wrong: float) -> None:
    with pytest.raises(DataError, match="1 of 2 margins are no numbers"):
        calibrate([wrong, 1.0], [True, False])


def test_calibration_needs_both_kinds_of_rows() -> None:
    with pytest.raises(DataError, match="rows with an answer and rows without one"):
        calibrate([1.0], [True])
