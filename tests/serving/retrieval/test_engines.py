"""The engines find the same, and the benchmark of indexes measures and calculates what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")

from benchmarks.indexes import ENGINES, Row, ask, build, print_lines, spread
from serving.retrieval.dense import VECTORS, find_nearest
from serving.retrieval.neighbours import measure_recall

TEXTS = [("Velm", "A harbour."), ("Lomvi", "A ship.")]


def make_real(count: int, dimensions: int = 16) -> np.ndarray:
    vectors = np.random.default_rng(3).normal(size=(count, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_finds_what_a_comparison_with_all_finds(tmp_path: Path, name: str) -> None:
    if name == "Milvus":
        pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
    spread(make_real(1_000), 3_000, tmp_path / VECTORS)
    matrix, questions = np.load(tmp_path / VECTORS), make_real(1_050)[1_000:]
    (tmp_path / name).mkdir()
    build(name, tmp_path / name, tmp_path / VECTORS, TEXTS)
    found, took, _ = ask(name, tmp_path / name, questions)
    exact = find_nearest(matrix, questions, 10)[1]
    assert measure_recall(np.array(found), exact) >= 0.98
    assert len(took) == len(questions) and min(clock for clock, _ in took) > 0


def test_further_vectors_are_of_length_1_near_real_ones_and_the_same_in_every_size(tmp_path: Path) -> None:
    real = make_real(50)
    for count in (40, 200, 300):
        spread(real, count, tmp_path / str(count))
    small, some, more = (np.load(tmp_path / str(count)) for count in (40, 200, 300))
    assert np.array_equal(small, real[:40]) and np.array_equal(some[:50], real)
    assert np.allclose(np.linalg.norm(more, axis=1), 1, atol=1e-6) and len(np.unique(more, axis=0)) > 290


def test_the_lines_lead_where_the_rows_lead(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("X", n, 0, 0, 10 + 2_000 * n / 2**20, 0.001 * n**0.5, 0, 0, 1) for n in (10**4, 10**5, 10**6)]
    print_lines("X", rows)
    bytes_each, fixed, power, off, _, gib, ms, _, more_ms = capsys.readouterr().out.split()[1:]
    assert (bytes_each, fixed, power, off) == ("2,000", "10", "0.50", "0")
    assert float(gib) == pytest.approx(2_000 * 10**8 / 2**30, rel=0.01)
    assert (ms, more_ms) == ("10.0", "31.6")
