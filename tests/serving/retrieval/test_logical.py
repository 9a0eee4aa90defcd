"""Composing scores: truth tables at 0 and 1, parity with a brute-force reading of the query, calibration, fusion."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import DataError
from revelator.plans.logic import And, Not, Query, Term, holds, move_negations_inwards, parse
from serving.retrieval.dense import find_best
from serving.retrieval.fusion import fuse_ranks
from serving.retrieval.logical_search import (
    SMALLEST,
    Operators,
    ScoreCalibration,
    calibrate_unlabelled,
    compose,
    fit_calibration,
)
from tests.revelator.plans.queries import few_terms

ALL = [
    Operators(conjunction=conjunction, disjunction=disjunction, negation=negation)
    for conjunction in ("product", "sum", "min")
    for disjunction in ("sum", "max")
    for negation in ("complement", "reciprocal")
]
TRUTHFUL = [o for o in ALL if o.conjunction != "sum" and o.negation == "complement"]


@given(operators=st.sampled_from(TRUTHFUL), query=few_terms)
def test_at_scores_of_0_and_1_a_document_scores_above_0_exactly_where_the_query_holds(
    operators: Operators, query: Query
) -> None:
    rows = list(itertools.product((0.0, 1.0), repeat=4))
    columns = {name: np.array(column) for name, column in zip("abcd", zip(*rows, strict=True), strict=True)}
    composed = compose(query, columns, operators) + np.zeros(len(rows))
    expected = [holds(query, dict(zip("abcd", map(bool, row), strict=True))) for row in rows]
    assert (composed > 0).tolist() == expected
    assert (composed >= 0).all()


@given(operators=st.sampled_from(ALL), query=few_terms, seed=st.integers(0, 1000))
def test_arrays_compose_as_numbers_do_one_document_at_a_time(operators: Operators, query: Query, seed: int) -> None:
    scores = dict(zip("abcd", np.random.default_rng(seed).random((4, 5)), strict=True))
    composed = compose(query, scores, operators)
    for i in range(5):
        value = brute_force(
            move_negations_inwards(query), {name: float(column[i]) for name, column in scores.items()}, operators
        )
        assert composed[i] == pytest.approx(value)


def brute_force(query: Query, scores: dict[str, float], operators: Operators) -> float:
    if isinstance(query, Term):
        return scores[query.text]
    if isinstance(query, Not):
        inner = brute_force(query.operand, scores, operators)
        return 1 - inner if operators.negation == "complement" else 1 / max(inner, SMALLEST)
    values = [brute_force(operand, scores, operators) for operand in query.operands]
    kind = operators.conjunction if isinstance(query, And) else operators.disjunction
    return {"product": math.prod, "sum": sum, "min": min, "max": max}[kind](values)


@given(query=few_terms, seed=st.integers(0, 1000))
def test_a_term_that_is_asked_for_never_lowers_a_score_and_one_that_is_excluded_never_raises_it(
    query: Query, seed: int
) -> None:
    from revelator.plans.logic import list_literals

    scores = dict(zip("abcd", np.random.default_rng(seed).random((4, 3)), strict=True))
    before = compose(query, scores)
    for text in {text for text, _ in list_literals(query)}:
        signs = {negated for name, negated in list_literals(query) if name == text}
        after = compose(query, scores | {text: scores[text] + 0.5 * (1 - scores[text])})
        if signs == {False}:
            assert (after >= before - 1e-12).all()
        if signs == {True}:
            assert (after <= before + 1e-12).all()


def test_the_default_is_the_papers() -> None:
    scores = {name: np.array([value]) for name, value in (("a", 0.5), ("b", 0.25), ("c", 0.5))}
    assert compose(parse('"a" AND ("b" OR NOT "c")'), scores) == pytest.approx(0.5 * (0.25 + 0.5))


def test_excluding_two_alternatives_never_ranks_their_documents_first() -> None:
    """Composed as it stands, NOT (a OR b) AND NOT (c OR d) would give a document of all four (-1)·(-1) = 1."""
    scores = {name: np.array([1.0, 0.0]) for name in "abcd"}
    assert compose(parse('NOT ("a" OR "b") AND NOT ("c" OR "d")'), scores).tolist() == [0, 1]


def test_composing_holds_few_arrays_whatever_the_number_of_operands() -> None:
    scores = {"a": np.random.default_rng(0).random(10_000)}
    query = parse(" AND ".join(['NOT "a"'] * 1000))
    tracemalloc.start()
    compose(query, scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * scores["a"].nbytes


def test_best_takes_equal_scores_in_order() -> None:
    assert find_best(np.array([1.0, 3.0, 2.0, 3.0]), 3).tolist() == [1, 3, 2]
    assert find_best(np.array([1.0]), 5).tolist() == [0]


def test_a_calibration_finds_the_threshold_between_two_groups() -> None:
    scores = np.concatenate([np.linspace(0.6, 0.8, 20), np.linspace(0.1, 0.3, 20)])
    calibration = fit_calibration(scores, [1] * 20 + [0] * 20)
    assert calibration.threshold == pytest.approx(0.45, abs=0.02)
    assert 0 < calibration.slope < math.inf
    p = calibration(scores)
    assert p[:20].min() > 0.8 > 0.2 > p[20:].max()


@given(st.floats(-1, 1), st.floats(5, 60))
def test_a_fit_recovers_the_calibration_that_made_the_labels(threshold: float, slope: float) -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(threshold - 0.5, threshold + 0.5, 4000)
    labels = rng.random(4000) < ScoreCalibration(threshold, slope)(scores)
    found = fit_calibration(scores, labels)
    assert found.threshold == pytest.approx(threshold, abs=0.03)
    assert found.slope == pytest.approx(slope, rel=0.25)


def test_a_calibration_keeps_the_order_even_where_labels_are_against_it() -> None:
    calibration = fit_calibration([0.1, 0.2, 0.8, 0.9], [1, 1, 0, 0])
    assert (np.diff(calibration(np.linspace(0, 1, 9))) > 0).all()


def test_a_calibration_of_one_label_alone_is_refused() -> None:
    with pytest.raises(DataError, match="both labels"):
        fit_calibration([0.1, 0.2], [1, 1])


def test_self_labelling_takes_the_best_documents_for_positives() -> None:
    scores = np.concatenate([np.full(20, 0.7), np.random.default_rng(0).uniform(0, 0.2, 500)])
    assert 0.2 < calibrate_unlabelled(scores).threshold < 0.7


def test_reciprocal_ranks_add_up_over_rankings() -> None:
    scores, places = fuse_ranks([np.array([4, 7]), np.array([7, 9])])
    assert places.tolist() == [7, 4, 9]
    assert scores.tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])
