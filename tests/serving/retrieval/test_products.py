"""Products of few vectors with all of a matrix, and the nearest by them."""

from __future__ import annotations

import numpy as np

from serving.retrieval.dense import compute_products, find_nearest


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
    assert (find_nearest(matrix, many, 1)[1][:, 0] == np.argmax(many @ matrix[:20_000].T, axis=1)).all()
    queries[2, 0] = np.nan
    assert (find_nearest(matrix, queries, 3)[1] == -1).all(1).tolist() == [False, False, True, False, False]


def test_a_product_in_blocks_is_the_product() -> None:
    rng = np.random.default_rng(0)
    matrix, vectors = (rng.normal(size=(n, 24)).astype(np.float32) for n in (70_000, 4))
    assert np.allclose(compute_products(matrix, vectors), vectors @ matrix.T, atol=1e-4)
