"""Products of few vectors with all of a matrix, the nearest by them, and logical queries that leave documents out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.plans.logic import Query, parse, terms
from serving.retrieval.dense import compute_products, find_nearest
from serving.retrieval.logic import Operators, Score, compose, find_bounds, search_bounded
from serving.retrieval.logical_search import Calibration
from tests.serving.retrieval.test_logical import ALL, queries

CALIBRATIONS = st.lists(
    st.sampled_from([None, Calibration(0.6, 12.0), Calibration(0.2, 3.0), Calibration(1.0, 1000.0)]),
    min_size=4,
    max_size=4,
)
CONJUNCTIONS = [
    parse(text)
    for text in ('"a" AND "b"', '"a" AND "b" AND "c"', '"a" AND "b" AND NOT "c"', '"a" AND "b" AND ("c" OR NOT "d")')
]


@pytest.fixture(scope="module")
def matrix() -> np.ndarray:
    rows = unit(np.random.default_rng(0).normal(size=(70_000, 12)))
    rows[-200:] = rows[:200]  # the same documents again, in another block
    return rows


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def scored(calibrations: list[Calibration | None]) -> Score:
    """Each of the terms a to d by a calibration of its own, or none."""

    def score(name: str, cosines: np.ndarray) -> np.ndarray:
        calibration = calibrations["abcd".index(name)]
        return calibration(cosines) if calibration else np.clip(cosines, 0, 1)

    return score


@settings(max_examples=150)
@given(
    query=queries | st.sampled_from(CONJUNCTIONS),
    operators=st.sampled_from(ALL),
    calibrations=CALIBRATIONS,
    k=st.sampled_from([1, 10, 100, 70_010]),
    near=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 100),
)
def test_leaving_documents_out_by_a_bound_gives_the_exact_answer(
    matrix: np.ndarray,
    query: Query,
    operators: Operators,
    calibrations: list[Calibration | None],
    k: int,
    near: float,
    seed: int,
) -> None:
    """Against composing the scores of all documents; `near` 0: the terms are documents."""
    names, score = terms(query), scored(calibrations)
    around = unit(matrix[seed : seed + len(names)] + near * matrix[seed + 9 : seed + 9 + len(names)])
    vectors = dict(zip(names, around, strict=True))
    expected = compose(query, {name: score(name, matrix @ vector) for name, vector in vectors.items()}, operators)
    scores, places = search_bounded(query, k, matrix, vectors, score, operators)
    assert np.allclose(scores, np.sort(expected)[::-1][:k], rtol=1e-4, atol=1e-6)
    assert np.allclose(expected[places], scores, rtol=1e-4, atol=1e-6)
    assert len(set(places.tolist())) == min(k, len(matrix))
    assert (np.diff(places)[np.diff(scores) == 0] > 0).all()  # of equal ones the first comes first


@settings(max_examples=300)
@given(
    query=queries | st.sampled_from(CONJUNCTIONS),
    operators=st.sampled_from(ALL),
    calibrations=CALIBRATIONS,
    spread=st.sampled_from([0.05, 0.3, 1.0]),
    seed=st.integers(0, 100),
)
def test_what_a_bound_leaves_out_scores_below_what_is_reached(
    query: Query, operators: Operators, calibrations: list[Calibration | None], spread: float, seed: int
) -> None:
    """Of each bound that there is, whichever a search takes, for documents that were not in the sample, and for cosines
    that rounding has brought above 1."""
    names, score = list(terms(query)), scored(calibrations)
    drawn = np.random.default_rng(seed).normal(0, spread, (len(names), 4000))
    cosines = np.clip(drawn, -1, 1 + 3e-7).astype(np.float32)
    scores = compose(query, {name: score(name, row) for name, row in zip(names, cosines, strict=True)}, operators)
    reached = float(np.sort(scores)[-10])
    for bound in find_bounds(query, names, cosines[:, :2000], reached, score, operators):
        out = (bound.select_rows(cosines) < bound.find_limit(reached)).all(0)
        assert (scores[out] < reached).all()


def test_a_conjunction_is_bounded_by_the_sum_of_its_terms() -> None:
    cosines = np.random.default_rng(0).normal(0, 0.05, (3, 20_000)).astype(np.float32)
    reached = float(np.sort(np.clip(cosines, 0, 1).prod(0))[-10])
    ways = find_bounds(CONJUNCTIONS[1], ["a", "b", "c"], cosines, reached, scored([None] * 4), Operators())
    share = {bound.summed: bound.measure_share(cosines, reached) for bound in ways}
    assert share[True] < 0.01 < share[False]


@pytest.mark.parametrize("query", ['"a" AND "b"', '"a" OR "b"', " AND ".join(['"a"', *['NOT "b"'] * 20])])
@pytest.mark.parametrize("rows", [1, 1000, 20_000])
def test_documents_that_all_score_the_same_come_in_order(query: str, rows: int) -> None:
    """Zero with the first two queries, and with the last infinite: 1000 to the twentieth is too much for float32."""
    matrix = np.tile(unit(np.ones((1, 8))), (rows, 1))

    def score(name: str, cosines: np.ndarray) -> np.ndarray:
        return np.clip(cosines, 0, 1) + np.float32(0.5 if name == "a" and "NOT" in query else 0)

    with np.errstate(over="ignore"):
        vectors, operators = dict.fromkeys("ab", -matrix[0]), Operators(negation="reciprocal")
        scores, places = search_bounded(parse(query), 10, matrix, vectors, score, operators)
    assert places.tolist() == list(range(min(10, rows)))
    assert set(scores.tolist()) == {np.inf if "NOT" in query else 0.0}


def test_the_nearest_of_all_vectors_are_those_of_a_sorted_product() -> None:
    rng = np.random.default_rng(0)
    matrix, queries = (rng.normal(size=(n, 24)).astype(np.float32) for n in (40_000, 5))
    matrix[20_000:] = matrix[:20_000]  # each twice
    scores, places = find_nearest(matrix, queries, 30)
    expected = np.argsort(-(queries @ matrix[:20_000].T), axis=1, kind="stable")[:, :15]
    assert places[:, ::2].tolist() == expected.tolist()  # of equal ones the first comes first
    assert places[:, 1::2].tolist() == (expected + 20_000).tolist()
    assert np.allclose(scores, np.take_along_axis(queries @ matrix.T, places, 1), atol=1e-4)
    assert (find_nearest(matrix[:7], queries, 10)[1] == -1).sum(1).tolist() == [3] * 5
    many = rng.normal(size=(150, 24)).astype(np.float32)
    assert (find_nearest(matrix, many, 1)[1][:, 0] == np.argmax(many @ matrix.T, axis=1)).all()
    queries[2, 0] = np.nan
    assert (find_nearest(matrix, queries, 3)[1] == -1).all(1).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("join", [" OR ", " AND ", " AND NOT "])
def test_a_query_of_many_terms_is_composed_like_any_other(join: str) -> None:
    rng = np.random.default_rng(0)
    matrix, among = (rng.normal(size=(n, 32)).astype(np.float32) for n in (3000, 64))
    matrix, among = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (matrix, among))
    names = ["\0term 1", *(f"term {place}" for place in range(1, 64))]
    query, vectors = parse(join.join(f'"{name}"' for name in names)), dict(zip(names, among, strict=True))

    def score(_: str, cosines: np.ndarray) -> np.ndarray:
        return np.clip(cosines, 0, 1)

    expected = compose(query, {name: score(name, matrix @ vector) for name, vector in vectors.items()})
    scores, places = search_bounded(query, 10, matrix, vectors, score, Operators())
    assert scores.tolist() == pytest.approx(np.sort(expected)[::-1][:10].tolist(), rel=1e-4)
    assert expected[places].tolist() == pytest.approx(scores.tolist(), rel=1e-4)


def test_a_product_in_blocks_is_the_product() -> None:
    rng = np.random.default_rng(0)
    matrix, vectors = (rng.normal(size=(n, 24)).astype(np.float32) for n in (1500, 4))
    assert np.allclose(compute_products(matrix, vectors), vectors @ matrix.T, atol=1e-4)
    places = rng.integers(0, len(matrix), 1100)
    assert np.allclose(compute_products(matrix, vectors, places), vectors @ matrix[places].T, atol=1e-4)
