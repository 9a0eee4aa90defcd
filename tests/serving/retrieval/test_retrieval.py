"""The BM25 index: what it finds, what it refuses, and that it is whole or absent."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import json
import os
import shutil
import tempfile
import tracemalloc
from collections import deque
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator import row_files
from revelator.errors import ArtifactError, ConfigError, DataError, InvalidRequest, Unavailable
from revelator.trace import Passage
from serving.retrieval import INDEX, Index, LocalRetriever, build_index, extract_query_terms
from serving.retrieval.index_folder import PassageStore, encode_passage, write_passages
from serving.retrieval.indexing import update_index
from tests.serving.retrieval.stopped import Stopped

ROWS = [
    {"id": "a", "title": "Marlow Vint", "text": "Marlow Vint was a director. He directed Copper Rain in 1962."},
    {"id": "b", "title": "Copper Rain", "text": "Copper Rain is a film about a lighthouse keeper."},
    {"id": "c", "title": "Ålevik", "text": "Ålevik is a town with 4,310 inhabitants and a lighthouse."},
    {"id": "d", "title": "Lighthouse", "text": "A tower with a lamp."},
]


def write_corpus(path: Path, rows: list[dict], *, gzipped: bool = False) -> Path:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if gzipped else data)
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("index")
    build_index([write_corpus(folder / "corpus.jsonl", ROWS)], folder / "out")
    return Index.open(folder / "out")


def ids(index: Index, query: str, k: int = 10) -> list[str]:
    return [passage.id for passage in index.search(query, k)]


def test_a_title_counts_more_than_the_same_word_in_a_text(index: Index) -> None:
    assert ids(index, "lighthouse")[0] == "d"


IDS = st.lists(st.text(alphabet='a"\\, :{}#é\n\ud800title', max_size=12), min_size=1, max_size=8, unique=True)


@given(IDS, st.text(alphabet='a"', max_size=3))
def test_every_passage_is_found_by_its_id_whatever_stands_in_it(ids: list[str], other: str) -> None:
    kept = [id.encode(errors="replace").decode() for id in ids]
    with tempfile.TemporaryDirectory() as folder:
        lines = [encode_passage(Passage(id, 'a", "title": "b', "text")) for id in ids]
        write_passages(Path(folder), [(b"".join(lines), np.array([len(line) for line in lines], np.uint64))])
        store = PassageStore(Path(folder))
        assert [kept[store.find(id)] for id in kept] == kept
        assert store.find(other) == (kept.index(other) if other in kept else None)


def test_a_passage_is_opened_between_its_neighbours_in_the_same_document(tmp_path: Path) -> None:
    files = {"one.txt": "First. " * 150 + "Second. " * 150 + "Third. " * 150, "two.txt": "Another one."}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    build_index([tmp_path / name for name in files], tmp_path / "out")
    index = Index.open(tmp_path / "out")
    every = [index.passages[place] for place in range(len(index))]
    places = [index.open_passage(passage.id) for passage in every]
    assert [place and place.passage for place in places] == every and len(every) > 3
    for (one, place), (other, after) in pairwise(zip(every, places, strict=True)):
        together = one.file == other.file
        assert (place.after, after.before) == ((other, one) if together else (None, None))
    assert index.open_passage("one.txt#0-1") is None


def test_inflections_and_accents_of_a_word_are_one_term(index: Index) -> None:
    assert ids(index, "Who directs?")[0] == "a"
    assert ids(index, "ALEVIK") == ["c"]


def test_passages_come_back_as_written_with_scores_that_fall(index: Index) -> None:
    found = index.search("copper rain lighthouse", 10)
    assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)
    assert {"id": found[0].id, "title": found[0].title, "text": found[0].text} == ROWS[1]


@pytest.mark.parametrize("query", ["", "   ", "?!", "the of and", "zzzz unseen", "\x00\ud800"])
def test_a_query_without_a_known_term_finds_nothing(index: Index, query: str) -> None:
    assert index.search(query, 5) == []


def test_words_that_only_ask_are_left_out_unless_nothing_else_is_left() -> None:
    assert extract_query_terms("Who directed what?") == ["direct"]
    assert extract_query_terms("The Who") == ["who"]


def test_k_beyond_the_corpus_gives_every_passage_that_shares_a_term(index: Index) -> None:
    assert sorted(ids(index, "lighthouse", k=1000)) == ["b", "c", "d"]


def test_k_must_be_positive(index: Index) -> None:
    with pytest.raises(InvalidRequest, match="k must be 1 or more"):
        index.search("lighthouse", 0)


def test_a_long_query_is_answered(index: Index) -> None:
    assert ids(index, "lighthouse " + "word " * 2000 + "keeper")[0] in ("b", "d")


@given(st.text(max_size=200), st.integers(1, 9))
def test_any_text_is_a_query(index: Index, query: str, k: int) -> None:
    found = index.search(query, k)
    assert len(found) <= k
    assert all(passage.score > 0 for passage in found)


def test_equal_scores_keep_the_order_of_the_corpus(tmp_path: Path) -> None:
    rows = [{"title": f"t{i}", "text": "same words here"} for i in range(30)]
    build_index([write_corpus(tmp_path / "c.jsonl", rows)], tmp_path / "out")
    assert ids(Index.open(tmp_path / "out"), "words", 3) == ["c:1", "c:2", "c:3"]


def test_scores_are_those_of_bm25s_used_plainly(tmp_path: Path, index: Index) -> None:
    import bm25s

    from serving.retrieval import extract_terms

    words = [extract_terms(r["title"]) * 2 + extract_terms(r["text"]) for r in ROWS]
    plain = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    plain.index(words, show_progress=False)
    expected = plain.get_scores(extract_terms("lighthouse keeper"))
    found = {p.id: p.score for p in index.search("lighthouse keeper", 4)}
    assert found == pytest.approx({r["id"]: s for r, s in zip(ROWS, expected, strict=True) if s > 0})


def test_gzip_is_known_by_its_content_and_several_corpora_are_one_index(tmp_path: Path) -> None:
    one = write_corpus(tmp_path / "one.data", ROWS[:2], gzipped=True)
    two = write_corpus(tmp_path / "two.jsonl", ROWS[2:])
    manifest = build_index([one, two], tmp_path / "out")
    assert manifest["count"] == 4
    assert [c["name"] for c in manifest["corpora"]] == ["one.data", "two.jsonl"]


UNBROKEN = b'{"title": "' + b"a" * 3_000_000
BOMBS = {
    "c.jsonl.gz": (
        gzip.compress(b'{"title": "a", "text": "b"}\n' + UNBROKEN),
        "after line 1: a line of more than 1,000",
    ),
    "c.jsonl": (bz2.compress(b'{"title": "a", "text": "b"}\n' + UNBROKEN), "after line 1: a line of more than 1,000"),
    "c.csv.gz": (gzip.compress(b"title,text\na,b\n" + UNBROKEN), "after line 2: a line of more than 1,000"),
    "c.tsv.gz": (gzip.compress(b"title\ttext\na\tb\n" + UNBROKEN), "after line 2: a line of more than 1,000"),
    "d.csv.gz": (
        gzip.compress(b"title,text\na,b\n" + b'"' + b'a\n","' * 1_000_000),
        "after line 2: a row of more than 1,000",
    ),
    "e.csv.gz": (gzip.compress(b"title,text\na,b\n" + b'"' + b"a\n" * 1_000_000), "after line 2: a row of more than"),
    "f.jsonl.gz": (gzip.compress(b'{"title": "a", "text": "b"}\n' + b"\n" * 3_000_000), "more than 200 times its size"),
    "g.jsonl": (bz2.compress(b'{"title": "a", "text": "b"}\n' + b"0\n" * 1_000_000), "more than 200 times its size"),
    "a.jsonl.gz": (gzip.compress(b"[" + b"0," * 1_500_000 + b"0]"), "an array that unfolds to more than 100,000"),
    "b.jsonl.gz": (gzip.compress(b"[\n" + b"0,\n" * 1_000_000 + b"0]"), "an array that unfolds to more than 100,000"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_rows_that_unfold_to_very_much_are_refused_before_they_have_done_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data, says = BOMBS[name]
    (tmp_path / name).write_bytes(data)
    assert len(data) < 10_000
    monkeypatch.setattr(row_files, "LINE", 1_000)
    monkeypatch.setattr(row_files, "ARRAY", 100_000)
    monkeypatch.setattr(row_files, "UNFOLDED", 500_000)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=says) as refused:
            deque(row_files.read_rows(str(tmp_path / name), lenient=True), maxlen=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000 and str(tmp_path) in str(refused.value) and refused.value.hint


def test_an_array_that_is_not_compressed_has_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "LINE", 10)
    monkeypatch.setattr(row_files, "ARRAY", 10)
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    assert [row for _, row in row_files.read_rows(str(tmp_path / "a.json"))] == ROWS


def test_a_file_that_takes_no_space_on_the_disk_is_read_no_further_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sparse.jsonl"
    path.touch()
    os.truncate(path, 1 << 40)
    monkeypatch.setattr(row_files, "LINE", 1_000_000)
    with pytest.raises(DataError, match="a line of more than 1,000,000 bytes"):
        list(row_files.read_rows(str(path)))


def test_a_header_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("größe,text\na,b\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8 text: byte 0xf6 at character 3; save the file as UTF-8"):
        build_index([tmp_path / "a.csv"], tmp_path / "out")


@pytest.mark.parametrize("columns", [2, 10_000])
def test_two_columns_of_one_name_are_found_by_looking_at_each_once(tmp_path: Path, columns: int) -> None:
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    with pytest.raises(DataError, match="two columns are called 'a'"):
        row_files.name_fields([Name("a"), *(Name(f"c{n}") for n in range(columns)), Name("a")])
    assert compared < 5 * columns + 10


@pytest.mark.parametrize("bound", ["BATCH_BYTES", "GROUP_BYTES"])
def test_a_parquet_file_that_unfolds_to_very_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    table = pyarrow.table({"title": ["a"] * 1_000, "text": ["b" * 10_000] * 1_000})
    pyarrow.parquet.write_table(table, tmp_path / "c.parquet", use_dictionary=bound == "BATCH_BYTES")
    assert len(list(row_files.read_rows(str(tmp_path / "c.parquet")))) == 1_000
    monkeypatch.setattr(row_files, bound, 1_000_000)
    with pytest.raises(DataError, match="unfold") as refused:
        list(row_files.read_rows(str(tmp_path / "c.parquet")))
    assert "c.parquet" in str(refused.value) and refused.value.hint


def test_what_a_stopped_build_left_damaged_is_made_again(tmp_path: Path) -> None:
    corpus, work = write_corpus(tmp_path / "c.jsonl", ROWS), tmp_path / ".ix.building"
    whole = build_index([corpus], tmp_path / "whole", shard_size=1)
    for name in ("plan.json", "000000.npz"):
        with pytest.raises(KeyboardInterrupt):
            build_index([corpus], tmp_path / "ix", shard_size=1, progress=Stopped("counting terms", at=2))
        assert sorted(path.name for path in work.iterdir()) == ["000000.npz", "000001.npz", "plan.json"]
        data = (work / name).read_bytes()
        (work / name).write_bytes(data[:-100])
        flipped = bytearray((work / "000001.npz").read_bytes())
        flipped[len(flipped) // 2] ^= 1
        (work / "000001.npz").write_bytes(flipped)
        build_index([corpus], tmp_path / "ix", shard_size=1)
        assert INDEX.read_manifest(tmp_path / "ix", verify=True)["files"] == whole["files"]


def test_the_same_corpus_and_settings_give_the_same_bytes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", ROWS)
    first, second = (build_index([corpus], tmp_path / name) for name in ("x", "y"))
    assert first == second


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not an object"),
        ('{"title": "t"}', "`text` is missing"),
        ('{"title": 3, "text": "x"}', "`title` is missing or not a string"),
        ('{"title": "", "text": " "}', "both empty"),
        ('{"id": [1], "title": "t", "text": "x"}', "`id` is neither"),
    ],
)
def test_a_broken_line_stops_the_build_with_its_place_and_leaves_nothing(
    tmp_path: Path, line: str, reason: str
) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    with pytest.raises(DataError, match=reason) as caught:
        build_index([corpus], tmp_path / "out")
    assert caught.value.where == f"{corpus}:2"
    assert [p.name for p in tmp_path.iterdir()] == ["c.jsonl"]


def test_an_id_that_is_used_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", [ROWS[0], ROWS[1], ROWS[0]])
    with pytest.raises(DataError, match=r"id 'a' was used already at .*c\.jsonl:1") as caught:
        build_index([corpus], tmp_path / "out")
    assert caught.value.where == f"{corpus}:3"


def test_an_empty_corpus_a_missing_one_and_a_cut_gzip_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no passage"):
        build_index([write_corpus(tmp_path / "empty.jsonl", [])], tmp_path / "out")
    with pytest.raises(DataError, match="no such file or folder"):
        build_index([tmp_path / "absent.jsonl"], tmp_path / "out")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(json.dumps(ROWS[0]).encode() * 50)[:-12])
    with pytest.raises(DataError, match="gzip stream is damaged"):
        build_index([cut], tmp_path / "out")


def test_a_corpus_of_stop_words_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no passage holds a word"):
        build_index([write_corpus(tmp_path / "c.jsonl", [{"title": "The", "text": "of and"}])], tmp_path / "out")


def test_a_folder_that_is_no_index_is_neither_opened_nor_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("words")
    with pytest.raises(ArtifactError, match="not an index"):
        Index.open(precious)
    with pytest.raises(ConfigError, match="is not an index"):
        build_index([write_corpus(tmp_path / "c.jsonl", ROWS)], precious)
    assert (precious / "thesis.txt").read_text() == "words"


def test_a_damaged_index_names_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build_index([write_corpus(tmp_path / "c.jsonl", ROWS)], out)
    data = (out / "passages.jsonl").read_bytes()
    (out / "passages.jsonl").write_bytes(data.replace(b"lamp", b"lump"))
    assert Index.open(out)
    with pytest.raises(ArtifactError, match="has changed") as caught:
        INDEX.read_manifest(out, verify=True)
    assert caught.value.where == str(out / "passages.jsonl")
    (out / "passages.jsonl").write_bytes(data[:-5])
    with pytest.raises(ArtifactError, match="has changed"):
        Index.open(out)
    (out / "passages.jsonl").write_bytes(data)
    (out / "offsets.npy").write_bytes(b"\xff" * (out / "offsets.npy").stat().st_size)
    with pytest.raises(ArtifactError, match="cannot be read") as unreadable:
        Index.open(out)
    assert "index info" in str(unreadable.value)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8))
def test_the_store_gives_back_any_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    from revelator.trace import Passage

    folder = tmp_path_factory.mktemp("store")
    lines = [encode_passage(Passage(str(i), "", text)) for i, text in enumerate(texts)]
    write_passages(folder, ((line, np.array([len(line)], np.uint64)) for line in lines))
    store = PassageStore(folder)
    assert [store[i].text for i in range(len(store))] == texts


async def test_the_retriever_answers_many_queries_at_once(index: Index) -> None:
    retriever = LocalRetriever(index)
    queries = ["lighthouse", "director", "copper", ""] * 10
    found = await asyncio.gather(*(retriever.search(query, 2) for query in queries))
    assert found == [index.search(query, 2) for query in queries]
    retriever.close()


async def test_an_index_that_is_copied_over_while_it_is_open_is_refused(tmp_path: Path) -> None:
    for name, rows in (("served", ROWS), ("smaller", ROWS[:1])):
        build_index([write_corpus(tmp_path / f"{name}.jsonl", rows)], tmp_path / name)
    retriever = LocalRetriever(Index.open(tmp_path / "served"))
    assert await retriever.search("lighthouse", 1)
    shutil.copytree(tmp_path / "smaller", tmp_path / "served", dirs_exist_ok=True)
    for ask in (retriever.search("lighthouse", 1), retriever.open_passage("0")):
        with pytest.raises(Unavailable, match="written over while it was open"):
            await ask
    build_index([tmp_path / "served.jsonl"], tmp_path / "served")
    with pytest.raises(Unavailable, match="written over while it was open"):
        await retriever.search("lighthouse", 1)  # a new index took its place: what is open is damaged all the same
    retriever.close()


def test_a_build_takes_nothing_over_from_an_index_that_has_changed(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", ROWS)
    build_index([corpus], tmp_path / "out")
    passages = tmp_path / "out" / "passages.jsonl"
    whole = passages.read_text()
    passages.write_text(whole.replace("lighthouse", "lightmouse"))
    with pytest.raises(ArtifactError, match="has changed since it was built"):
        update_index([corpus], tmp_path / "out")
    build_index([corpus], tmp_path / "out")
    assert passages.read_text() == whole


async def test_a_file_of_an_index_that_is_written_anew_at_its_size_is_seen_and_one_that_is_replaced_is_not(
    tmp_path: Path,
) -> None:
    build_index([write_corpus(tmp_path / "c.jsonl", ROWS)], tmp_path / "served")
    passages = tmp_path / "served" / "passages.jsonl"
    text = passages.read_text()
    retriever = LocalRetriever(Index.open(tmp_path / "served"))
    (tmp_path / "new").write_text(text.upper())
    (tmp_path / "new").replace(passages)
    assert await retriever.search("lighthouse", 1)
    retriever.close()
    passages.write_text(text)
    retriever = LocalRetriever(Index.open(tmp_path / "served"))
    passages.write_text(text.swapcase())
    with pytest.raises(Unavailable, match="written over while it was open"):
        await retriever.search("lighthouse", 1)
    retriever.close()


def test_an_index_of_an_earlier_version_opens_whatever_it_was_built_with(tmp_path: Path) -> None:
    build_index([write_corpus(tmp_path / "c.jsonl", ROWS)], tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    manifest["settings"] |= {"k1": 0.9, "b": 0.4, "title_weight": 3, "detokenize": True}
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    assert Index.open(tmp_path / "out").search("lighthouse", 1)
