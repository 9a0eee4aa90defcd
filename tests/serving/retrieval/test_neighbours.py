"""Approximate indexes of vectors: they find nearly what comparing with all finds, with the same scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")

from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError
from serving.retrieval import INDEX, Index, IndexSettings, add_to_index, build_index, logical_search
from serving.retrieval.dense import find_nearest
from serving.retrieval.logical_search import LogicalSettings, search_logical
from serving.retrieval.neighbours import FILE, Neighbours, choose_factory, measure_recall, sample_queries, write
from tests.serving.retrieval.test_dense import many, write_jsonl
from tests.serving.retrieval.toy_encoder import write_encoder

QUERIES = ("red cat", "a song about the sea", "iron tower in the city", "gold")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


def make_vectors(count: int, dimensions: int = 32) -> np.ndarray:
    """Of fewer dimensions than they have, as those of texts are."""
    random = np.random.default_rng(7)
    vectors = random.normal(size=(count, dimensions // 2)) @ random.normal(size=(dimensions // 2, dimensions))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("factory", "least"), [("HNSW32", 0.98), ("IVF64,Flat", 0.9), ("IVF64,SQ8", 0.9)])
def test_nearly_all_of_the_nearest_are_found_and_scored_exactly(tmp_path: Path, factory: str, least: float) -> None:
    matrix, told = make_vectors(20_000), list[tuple[int, int]]()
    write(tmp_path, matrix, factory, lambda *counts: told.append(counts))
    assert told[-1] == (len(matrix), len(matrix))
    queries = sample_queries(matrix)
    scores, places = Neighbours(tmp_path, matrix).search(queries, 10)
    assert measure_recall(places, find_nearest(matrix, queries, 10)[1]) >= least
    assert np.allclose(scores, np.einsum("qd,qkd->qk", queries, matrix[places]), atol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("factory", ["HNSW16", "IVF4,Flat"])
def test_an_index_that_names_a_factory_answers_as_one_that_compares_with_all(
    encoder: str, tmp_path: Path, factory: str
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(600))
    for name, faiss in (("flat", ""), ("near", factory)):
        build_index([corpus], tmp_path / name, IndexSettings(kind="hybrid", model=encoder, faiss=faiss))
    flat, near = Index.open(tmp_path / "flat"), Index.open(tmp_path / "near")
    assert flat.manifest["faiss"] == {"factory": "Flat", "recall": 1.0}
    assert near.manifest["faiss"]["factory"] == factory and near.manifest["faiss"]["recall"] > 0.9
    for query in QUERIES:
        ours, theirs = ({passage.id: passage.score for passage in one.search(query, 10)} for one in (near, flat))
        assert len(ours.keys() & theirs.keys()) >= 9
        assert all(ours[name] == pytest.approx(theirs[name], abs=1e-3) for name in ours.keys() & theirs.keys())


def test_what_is_added_is_found_and_the_recall_is_measured_anew(encoder: str, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(300))
    build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=encoder, faiss="HNSW16"))
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "new", "title": "whale", "text": "the opera about the snow"}])
    add_to_index([more], tmp_path / "ix")
    opened = Index.open(tmp_path / "ix")
    assert opened.settings.faiss == "HNSW16" and opened.search("opera about snow", 1)[0].id == "new"


def test_the_kind_follows_from_the_number_of_passages() -> None:
    assert [choose_factory(count, 384) for count in (99_999, 100_000, 1_999_999)] == ["Flat", "HNSW32", "HNSW32"]
    assert choose_factory(2_000_000, 384) == "IVF4096,PQ48" and choose_factory(100_000_000, 384) == "IVF32768,PQ48"
    assert choose_factory(2_000_000, 10) == "IVF4096,SQ8", "eight dimensions have a code, where that divides them"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"faiss": "Nonsense"}, "FAISS makes no index of 'Nonsense'"),
        ({"faiss": "PCA64," * 3000 + "Flat"}, "at most 64 characters"),  # else it ends the process
        ({"faiss": "IVF999999999,Flat"}, "FAISS makes no index of"),
        ({"faiss": "IDMap,Flat"}, "does not take 12 vectors"),
        ({"faiss": "NSG32"}, "does not take 12 vectors"),
        ({"faiss": "IVF64,Flat"}, "12 vectors are too few"),
    ],
)
def test_a_factory_that_makes_no_index_is_refused_and_nothing_is_left(
    encoder: str, tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(12))
    with pytest.raises(ConfigError, match=reason) as caught:
        build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=encoder, **settings))
    assert caught.value.where == "--faiss" and "HNSW32" in str(caught.value.hint)
    assert "/" not in caught.value.message, "no place in the source of a library"
    assert not (tmp_path / "ix").exists()
    with pytest.raises(ConfigError, match="a bm25 index has no vectors"):
        IndexSettings(**settings)


def test_an_index_of_other_vectors_is_refused(encoder: str, tmp_path: Path) -> None:
    for name, count in (("a", 200), ("b", 201)):
        corpus = write_jsonl(tmp_path / f"{name}.jsonl", many(count))
        build_index([corpus], tmp_path / name, IndexSettings(kind="dense", model=encoder, faiss="HNSW16"))
    (tmp_path / "b" / FILE).replace(tmp_path / "a" / FILE)
    with pytest.raises(ArtifactError):
        Index.open(tmp_path / "a")


def test_what_an_index_finds_is_told_when_it_is_described(encoder: str, tmp_path: Path) -> None:
    corpus, out = write_jsonl(tmp_path / "c.jsonl", many(300)), str(tmp_path / "ix")
    built = CliRunner().invoke(
        revelator,
        ["index", "build", str(corpus), "--kind", "dense", "--model", encoder, "--faiss", "HNSW16", "--out", out],
    )
    assert built.exit_code == 0, built.output
    told = CliRunner().invoke(revelator, ["index", "info", out])
    assert "HNSW16, of the nearest ten " in built.output and "HNSW16, of the nearest ten " in told.output
    said = json.loads(CliRunner().invoke(revelator, ["index", "info", out, "--json"]).output)
    assert said["faiss"] == INDEX.read_manifest(tmp_path / "ix")["faiss"]


@pytest.mark.parametrize("source", ["dense", "both"])
def test_a_logical_query_scores_what_its_terms_bring_as_it_does_where_all_are_compared(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(600))
    for name, faiss in (("flat", "Flat"), ("near", "IVF4,Flat")):
        build_index([corpus], tmp_path / name, IndexSettings(kind="hybrid", model=encoder, faiss=faiss))
    flat, near = Index.open(tmp_path / "flat"), Index.open(tmp_path / "near")
    monkeypatch.setattr(logical_search, "CANDIDATES", 60)
    for query in ('"red cat" AND NOT "sea"', '("iron" OR "gold") AND "city"', 'NOT "snow" AND "opera"'):
        how = LogicalSettings(source=source)  # type: ignore[arg-type]
        exact, found = (search_logical(one, query, 10, how) for one in (flat, near))
        assert exact.scored == (600, 600) > (found.scored or (600, 600)) >= (60, 600)
        scores = {passage.id: passage.score for passage in search_logical(flat, query, 600, how)}
        assert all(passage.score == pytest.approx(scores[passage.id], abs=1e-5) for passage in found)
        assert len({passage.id for passage in exact} & {passage.id for passage in found}) >= 8
