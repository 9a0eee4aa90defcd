"""Dense and hybrid indexes: FAISS kinds, models that are refused, resumed builds, logical search of real indexes."""

from __future__ import annotations

import gzip
import json
import random
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")

from revelator.errors import ArtifactError, ConfigError, DataError, ExpressionError, InvalidRequest
from revelator.plans.logic import parse
from serving.retrieval import INDEX, Index, IndexSettings, build_index
from serving.retrieval.logical_search import (
    LogicalSettings,
    compose,
    rank_logical,
    search_logical,
)
from tests.serving.retrieval.stopped import Stopped
from tests.serving.retrieval.toy_encoder import WORDS, write_encoder

ROWS = [
    {"id": "both", "title": "red cat", "text": "a red cat and a blue dog"},
    {"id": "cat", "title": "cat", "text": "red cat"},
    {"id": "dog", "title": "dog", "text": "blue dog"},
    {"id": "fish", "title": "fish", "text": "silver fish in the sea"},
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(scope="module")
def index(encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("hybrid")
    corpus = write_jsonl(folder / "c.jsonl", ROWS)
    build_index([corpus], folder / "ix", IndexSettings(kind="hybrid", model=encoder))
    return Index.open(folder / "ix")


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def many(count: int, seed: int = 0) -> list[dict]:
    rng, words = random.Random(seed), sorted(set(WORDS.split()))
    return [{"id": str(i), "title": rng.choice(words), "text": " ".join(rng.choices(words, k=6))} for i in range(count)]


def test_the_nearest_passages_come_first_with_their_cosine(encoder: str, tmp_path: Path) -> None:
    build_index([write_jsonl(tmp_path / "c.jsonl", ROWS)], tmp_path / "ix", IndexSettings(kind="dense", model=encoder))
    opened = Index.open(tmp_path / "ix")
    found = opened.search("cat red cat", 2)
    assert [p.id for p in found] == ["cat", "both"]
    assert found[0].score == pytest.approx(1.0)
    assert isinstance(opened.vectors.matrix, np.memmap)  # type: ignore[union-attr]


def test_a_search_finds_what_comparing_with_all_vectors_finds(encoder: str, tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "c.jsonl", many(600))
    build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=encoder))
    opened = Index.open(tmp_path / "ix")
    hits = 0
    for query in ("red cat", "a song about the sea", "iron tower in the city"):
        cosines = opened.vectors.matrix @ opened.encoder.encode_queries([query])[0]  # type: ignore[union-attr]
        found = opened.search(query, 10)
        assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)
        assert all(p.score == pytest.approx(float(cosines[int(p.id)]), abs=1e-5) for p in found)
        hits += len({int(p.id) for p in found} & set(np.argsort(-cosines)[:10].tolist()))
    assert hits == 30


def test_a_hybrid_search_joins_both_rankings(index: Index) -> None:
    found = index.search("blue dog", 4)
    assert {p.id for p in found[:2]} == {"dog", "both"}
    assert len(found) == 4
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs a model"):
        IndexSettings(kind="dense")


def test_a_model_that_is_absent_or_pickled_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    corpus = write_jsonl(tmp_path / "c.jsonl", ROWS)
    with pytest.raises(ArtifactError, match="no such folder"):
        build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model="nobody/nothing"))
    pickled = write_encoder(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(ArtifactError, match="safetensors only"):
        build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=str(pickled)))
    dense = pickled / "2_Dense"
    dense.mkdir()
    (pickled / "pytorch_model.bin").rename(pickled / "model.safetensors")
    (dense / "pytorch_model.bin").write_bytes(b"")
    (dense / "decoy.safetensors").write_bytes(b"")
    with pytest.raises(ArtifactError, match="safetensors only") as caught:
        build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=str(pickled)))
    assert caught.value.where == str(dense / "pytorch_model.bin")
    (dense / "decoy.safetensors").rename(dense / "model.safetensors")
    build_index([corpus], tmp_path / "beside", IndexSettings(kind="dense", model=str(pickled)))
    (tmp_path / "plain").mkdir()
    with pytest.raises(ArtifactError, match="not a sentence-transformers model"):
        build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=str(tmp_path / "plain")))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["beside", "c.jsonl", "pickled", "plain"]


def test_an_index_refuses_another_model_under_the_name_of_its_own(tmp_path: Path) -> None:
    model = write_encoder(tmp_path / "model", seed=1)
    corpus = write_jsonl(tmp_path / "c.jsonl", ROWS)
    build_index([corpus], tmp_path / "ix", IndexSettings(kind="dense", model=str(model)))
    write_encoder(model, seed=2)
    with pytest.raises(ArtifactError, match="is not the one that this index was built with"):
        Index.open(tmp_path / "ix").search("cat", 1)


def test_tables_and_json_lines_of_the_same_rows_give_the_same_index(encoder: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = many(40)
    lines = write_jsonl(tmp_path / "c.jsonl", rows)
    table = tmp_path / "c.tsv.gz"
    text = "text\tid\ttitle\n" + "".join(f"{r['text']}\t{r['id']}\t{r['title']}\n" for r in rows)
    table.write_bytes(gzip.compress(text.encode()))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    found = []
    for corpus in (lines, table, tmp_path / "c.parquet"):
        out = tmp_path / f"{corpus.name}.ix"
        build_index([corpus], out, IndexSettings(kind="hybrid", model=encoder))
        files = INDEX.read_manifest(out)["files"]
        assert files.pop("columns.json"), "which names the file"
        found.append(files)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("c.tsv", b"\t\nx\ty\n", "names no column"),
        ("c.tsv", b"title\ttext\nonly one\n", "1 fields do not match the header of 2 columns"),
        ("c.parquet", b"PAR1 no", "cannot be read: Parquet"),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=reason):
        build_index([tmp_path / name], tmp_path / "ix")


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_stopped_build_goes_on_with_its_vectors_but_not_with_those_of_another_corpus(
    encoder: str, tmp_path: Path, is_changed: bool
) -> None:
    corpus, out = write_jsonl(tmp_path / "c.jsonl", many(120)), tmp_path / "ix"
    settings, work = IndexSettings(kind="hybrid", model=encoder), tmp_path / ".ix.building"
    with pytest.raises(KeyboardInterrupt):
        build_index([corpus], out, settings, shard_size=50, progress=Stopped("embedding", 50))
    [before] = work.glob("*.npz")
    written = before.stat().st_mtime_ns
    if is_changed:
        write_jsonl(corpus, many(120, seed=9))
    with pytest.raises(KeyboardInterrupt):
        build_index([corpus], out, settings, shard_size=50, progress=Stopped("embedding", 100))
    assert (before.stat().st_mtime_ns == written) is not is_changed
    build_index([corpus], out, settings, shard_size=50)
    build_index([corpus], tmp_path / "fresh", settings)
    assert INDEX.read_manifest(out)["files"] == INDEX.read_manifest(tmp_path / "fresh")["files"]
    assert not work.exists()


def test_a_rebuilt_index_has_the_next_version_and_readers_keep_the_old_one(encoder: str, tmp_path: Path) -> None:
    out = tmp_path / "ix"
    settings = IndexSettings(kind="hybrid", model=encoder)
    build_index([write_jsonl(tmp_path / "c.jsonl", ROWS)], out, settings)
    before = Index.open(out)
    manifest = build_index([write_jsonl(tmp_path / "c.jsonl", ROWS[:2])], out, settings)
    assert (before.manifest["version"], manifest["version"]) == (1, 2)
    assert {p.id for p in before.search("fish", 4)} == {"both", "cat", "dog", "fish"}
    assert len(Index.open(out)) == 2


def test_a_logical_query_finds_what_it_asks_for_and_not_what_it_excludes(index: Index) -> None:
    for source in ("dense", "bm25", "both"):
        settings = LogicalSettings(source=source)  # type: ignore[arg-type]
        assert search_logical(index, '"cat" AND "dog"', 4, settings)[0].id == "both"
        assert search_logical(index, '"cat" AND NOT "dog"', 4, settings)[0].id == "cat"
        assert search_logical(index, 'NOT ("cat" OR "dog")', 4, settings)[0].id == "fish"


def test_the_score_is_the_composition_of_the_terms_scores(index: Index) -> None:
    query = '"cat" AND ("dog" OR NOT "fish")'
    scores, _, scored = rank_logical(index, query, 4)
    assert scored == len(index)
    vectors = index.encoder.encode_queries(["cat", "dog", "fish"])
    cosines = np.maximum(vectors @ index.vectors.matrix.T, 0)  # type: ignore[union-attr]
    expected = compose(parse(query), dict(zip(("cat", "dog", "fish"), cosines, strict=True)))
    assert scores.tolist() == pytest.approx(sorted(expected[expected > 0].tolist(), reverse=True))
    scores, *_ = rank_logical(index, query, 4, LogicalSettings(source="bm25"))
    columns = {term: index.score_words(term) for term in ("cat", "dog", "fish")}
    expected = compose(parse(query), columns)
    assert scores.tolist() == pytest.approx(sorted(expected[expected > 0].tolist(), reverse=True))


def test_a_term_may_be_calibrated_by_its_own_best_documents(index: Index) -> None:
    found = search_logical(index, '"cat" AND NOT "dog"', 2, LogicalSettings(calibration="self"))
    assert found[0].id == "cat"


def test_a_query_that_cannot_run_is_refused_with_its_reason(index: Index, tmp_path: Path) -> None:
    with pytest.raises(ExpressionError):
        search_logical(index, "cat AND", 3)
    with pytest.raises(ExpressionError, match="holds no word") as raised:
        search_logical(index, '"cat" AND "?"', 3)
    assert raised.value.column == 11
    with pytest.raises(InvalidRequest, match="k must be"):
        search_logical(index, '"cat"', 0)
    build_index([write_jsonl(tmp_path / "c.jsonl", ROWS)], tmp_path / "ix")
    with pytest.raises(ConfigError, match="no vectors"):
        search_logical(Index.open(tmp_path / "ix"), '"cat"', 3, LogicalSettings(source="dense"))


def test_an_open_index_answers_threads_at_once(index: Index) -> None:
    expected = index.search("blue dog", 3)
    answers: list[list] = []
    threads = [threading.Thread(target=lambda: answers.append(index.search("blue dog", 3))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 8
