"""Approximate indexes of vectors: they find nearly what comparing with all finds, with the same scores."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from faiss import get_num_gpus

pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")

from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError
from revelator.folders import MANIFEST
from revelator.plans.logic import list_terms, render
from serving.retrieval import INDEX, Index, IndexSettings, build_index, logical_search, update_index
from serving.retrieval.dense import VECTORS, Vectors, find_nearest, write_neighbours
from serving.retrieval.logical_recall import SAMPLED, draw_queries, measure_logical_recall, rank_all
from serving.retrieval.logical_search import LogicalSettings, rank_logical, search_logical
from serving.retrieval.neighbours import (
    FILE,
    FLAT,
    MOST_EFFORT,
    MOST_ON_CARDS,
    WANTED,
    Neighbours,
    choose_factory,
    measure_recall,
    sample_queries,
)
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


@pytest.mark.parametrize("factory", ["HNSW32", "IVF64,Flat", "IVF64,SQ8", "IVF64,PQ16"])
def test_nearly_all_of_the_nearest_are_found_and_scored_exactly(tmp_path: Path, factory: str) -> None:
    matrix, told = make_vectors(20_000), list[tuple[int, int]]()
    write_neighbours(tmp_path, matrix, factory, lambda *counts: told.append(counts))
    assert told[-1] == (len(matrix), len(matrix))
    queries = sample_queries(matrix)
    scores, places = Neighbours.open(tmp_path, matrix).search(queries, 10)
    assert measure_recall(places, find_nearest(matrix, queries, 10)[1]) >= WANTED
    assert np.allclose(scores, np.einsum("qd,qkd->qk", queries, matrix[places]), atol=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("factory", ["HNSW8", "IVF64,PQ16"])
def test_a_search_looks_at_more_until_it_finds_nearly_all_and_the_file_keeps_how_much(
    tmp_path: Path, factory: str
) -> None:
    matrix = make_vectors(20_000, 64)
    recall = write_neighbours(tmp_path, matrix, factory, lambda *_: None)
    near, queries = Neighbours.open(tmp_path, matrix), sample_queries(matrix)
    exact = find_nearest(matrix, queries, 10)[1]
    assert near.effort > 1 and recall == measure_recall(near.search(queries, 10)[1], exact) >= WANTED
    near.effort //= 2
    assert measure_recall(near.search(queries, 10)[1], exact) < WANTED


def test_a_search_that_cannot_find_nearly_all_looks_at_sixteen_times_as_much_and_no_more(tmp_path: Path) -> None:
    matrix = make_vectors(20_000, 64)
    assert write_neighbours(tmp_path, matrix, "IVF64,PQ2", lambda *_: None) < WANTED
    assert Neighbours.open(tmp_path, matrix).effort == MOST_EFFORT


@pytest.mark.parametrize("factory", ["HNSW16", "IVF4,Flat"])
def test_an_index_that_names_a_factory_answers_as_one_that_compares_with_all(
    encoder: str, tmp_path: Path, factory: str
) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(600))
    for name, faiss in (("flat", ""), ("near", factory)):
        build_index([corpus], tmp_path / name, IndexSettings(kind="hybrid", model=encoder, faiss=faiss))
    flat, near = Index.open(tmp_path / "flat"), Index.open(tmp_path / "near")
    assert flat.manifest["faiss"] == {"factory": "Flat", "recall": 1.0, "logical_recall": 1.0}
    assert near.manifest["faiss"]["factory"] == factory and near.manifest["faiss"]["recall"] > 0.9
    for query in QUERIES:
        ours, theirs = ({passage.id: passage.score for passage in one.search(query, 10)} for one in (near, flat))
        assert len(ours.keys() & theirs.keys()) >= 9
        assert all(ours[name] == pytest.approx(theirs[name], abs=1e-3) for name in ours.keys() & theirs.keys())


def test_what_is_added_is_found_and_the_recall_is_measured_anew(encoder: str, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(300))
    build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=encoder, faiss="HNSW16"))
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "new", "title": "whale", "text": "the opera about the snow"}])
    update_index([more], tmp_path / "ix")
    opened = Index.open(tmp_path / "ix")
    assert opened.settings.faiss == "HNSW16" and opened.search("opera about snow", 1)[0].id == "new"


def write_vectors(folder: Path, factory: str, count: int = 20_000) -> np.ndarray:
    matrix = make_vectors(count)
    np.save(folder / VECTORS, matrix)
    if factory != FLAT:
        write_neighbours(folder, matrix, factory, lambda *counts: None)
    return matrix


@pytest.mark.skipif(not get_num_gpus(), reason="FAISS sees no card (extra `gpu` in place of `dense`)")
@pytest.mark.parametrize("factory", [FLAT, "HNSW32", "IVF64,Flat", "IVF64,SQ8", "IVF64,PQ8"])
def test_all_cards_find_what_the_cpu_finds(tmp_path: Path, factory: str) -> None:
    matrix = write_vectors(tmp_path, factory)
    queries, among = sample_queries(matrix), np.arange(len(matrix)) % 2 == 0
    on_cards, on_cpu = Vectors(tmp_path, range(get_num_gpus())), Vectors(tmp_path)
    assert on_cards.is_exact == (factory in (FLAT, "HNSW32")), "a graph is not searched there: all vectors are compared"
    found = on_cards.search(queries, 10)
    expected = find_nearest(matrix, queries, 10) if on_cards.is_exact else on_cpu.search(queries, 10)
    assert measure_recall(found[1], expected[1]) >= 0.999, "but for vectors that are equally near"
    assert np.allclose(found[0], expected[0], atol=1e-5)
    for k, mask in ((MOST_ON_CARDS + 1, None), (10, among)):  # what cards do not take
        assert np.array_equal(on_cards.search(queries, k, mask)[1], on_cpu.search(queries, k, mask)[1])


@pytest.mark.skipif(bool(get_num_gpus()), reason="there are cards")
@pytest.mark.parametrize("factory", [FLAT, "IVF64,Flat"])
def test_without_cards_the_cpu_searches_and_a_warning_says_so(
    tmp_path: Path, factory: str, caplog: pytest.LogCaptureFixture
) -> None:
    queries = sample_queries(write_vectors(tmp_path, factory, 5_000))
    with caplog.at_level(logging.WARNING):
        asked, plain = Vectors(tmp_path, (0, 1)), Vectors(tmp_path)
    assert "FAISS sees no GPU" in caplog.text and "extra `gpu`" in caplog.text
    assert asked.is_exact == plain.is_exact
    for ours, theirs in zip(asked.search(queries, 10), plain.search(queries, 10), strict=True):
        assert np.array_equal(ours, theirs)


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
    assert said["faiss"]["logical_recall"] == 1, "a thousand passages a term are scored, and there are 300"
    assert "of the best ten for a logical query 100.0%" in built.output
    assert "of the best ten for a logical query 100.0%" in told.output


def test_an_index_that_was_built_without_the_recall_of_logical_queries_is_read(encoder: str, tmp_path: Path) -> None:
    corpus, folder = write_jsonl(tmp_path / "c.jsonl", many(300)), tmp_path / "ix"
    manifest = build_index([corpus], folder, IndexSettings(kind="dense", model=encoder, faiss="HNSW16"))
    del manifest["faiss"]["logical_recall"]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    told = CliRunner().invoke(revelator, ["index", "info", str(folder)])
    assert told.exit_code == 0, told.output
    assert "of the nearest ten" in told.output and "logical" not in told.output
    assert len(Index.open(folder).search("red cat", 10)) == 10


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


@pytest.fixture(scope="module")
def pair(encoder: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    """An index that compares with all, and one that does not, of the same passages."""
    folder = tmp_path_factory.mktemp("pair")
    corpus = write_jsonl(folder / "c.jsonl", [row | {"title": row["text"][:12]} for row in many(600)])
    for name, faiss in (("flat", "Flat"), ("near", "IVF4,Flat")):
        build_index([corpus], folder / name, IndexSettings(kind="hybrid", model=encoder, faiss=faiss))
    return Index.open(folder / "flat"), Index.open(folder / "near")


def test_the_exact_ranking_of_logical_queries_is_that_of_an_index_which_compares_with_all(
    pair: tuple[Index, Index],
) -> None:
    flat, near = pair
    queries = draw_queries(near)
    assert [render(query) for query in queries] == [render(query) for query in draw_queries(flat)]
    assert len(queries) == SAMPLED and all(len(list_terms(query)) <= 2 for query in queries)
    for query, exact in zip(queries, rank_all(near, queries, 10), strict=True):
        assert exact.tolist() == rank_logical(flat, query, 10)[1].tolist()


def test_the_recall_of_logical_queries_is_whole_where_all_are_scored_and_else_what_counting_gives(
    pair: tuple[Index, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another way: each passage's score as the paper composes it, and as candidates the nearest of either term."""
    flat, near = pair
    assert measure_logical_recall(flat) == measure_logical_recall(near) == near.manifest["faiss"]["logical_recall"] == 1
    few = 15
    monkeypatch.setattr(logical_search, "CANDIDATES", few)
    assert near.vectors and flat.vectors
    found = wanted = 0
    for query in draw_queries(near):
        text, terms = render(query), list_terms(query)
        vectors = near.encoder.encode_queries(terms)
        first, second = (np.clip(near.vectors.matrix @ vector, 0, 1) for vector in (vectors[0], vectors[-1]))
        total = first * (1 - second) if " NOT " in text else first + second if " OR " in text else first * second
        exact = [place for place in np.argsort(-total, kind="stable")[:10] if total[place] > 0]
        near_either = {place for ranked in near.vectors.search(vectors, few)[1] for place in ranked.tolist()}
        ranked = sorted(near_either, key=lambda place: (-total[place], place))[:10]
        found += len(set(exact) & set(ranked))
        wanted += len(exact)
    assert measure_logical_recall(near) == pytest.approx(found / wanted, abs=0.002), "one of 500 by equal scores"
    assert 0.3 < found / wanted < 0.99
    assert measure_logical_recall(flat) == 1


def test_terms_are_texts_where_there_is_no_title_and_none_lacks_a_word(encoder: str, tmp_path: Path) -> None:
    rows = [row | {"title": "", "text": "—" if number % 2 else row["text"]} for number, row in enumerate(many(300))]
    for name, some in (("half", rows), ("none", rows[1::2])):
        settings = IndexSettings(kind="dense", model=encoder, faiss="HNSW16")
        manifest = build_index([write_jsonl(tmp_path / f"{name}.jsonl", some)], tmp_path / name, settings)
        assert manifest["faiss"]["logical_recall"] == 1
    texts = {row["text"] for row in rows} - {"—"}
    queries = draw_queries(Index.open(tmp_path / "half"))
    assert 0 < len(queries) < SAMPLED and {term for query in queries for term in list_terms(query)} <= texts
    assert draw_queries(Index.open(tmp_path / "none")) == []
