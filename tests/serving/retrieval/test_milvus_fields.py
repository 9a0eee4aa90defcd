"""Fields, filters and readers in Milvus: the engine keeps a search to its scope, and finds what a folder finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
pytest.importorskip("sentence_transformers", reason="the extra `dense` is not installed")

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.cli import revelator
from revelator.errors import DataError, InvalidRequest
from serving.protocols import OWNER, PUBLIC, Scope
from serving.retrieval import Index, IndexSettings, LocalRetriever, build_index, update_index
from serving.retrieval.engine import SearchIndex
from serving.retrieval.index_folder import Kind
from serving.retrieval.logical_search import LogicalSettings, Source, search_logical
from serving.retrieval.places import open_index
from tests.serving.retrieval.milvus_server import MilvusServer, serve_milvus
from tests.serving.retrieval.stopped import Stopped
from tests.serving.retrieval.test_fields import (
    CASES,
    FILES,
    FILTERS,
    GROUPS,
    HR,
    ROWS,
    SHELVES,
    WORDS,
    Filter,
    make_rows,
    write_files,
)
from tests.serving.retrieval.toy_encoder import write_encoder

SCOPES = [PUBLIC, Scope(groups=frozenset({"sales"})), HR, Scope(groups=frozenset({"board", "ops"})), OWNER]
Pair = tuple[Index, SearchIndex]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    with serve_milvus(tmp_path_factory.mktemp("milvus")) as running:
        yield running


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


def build_both(corpus: Path, out: Path, address: str, settings: IndexSettings | None = None) -> Pair:
    """The same documents in a folder and in Milvus."""
    for place in (out, address):
        build_index([corpus], place, settings or IndexSettings())
    return Index.open(out), open_index(address)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def find(index: SearchIndex, query: str, scope: Scope, k: int = 100) -> set[str]:
    return {passage.id for passage in index.search_many([query], k, scope)[0]}


@pytest.fixture(scope="module")
def law(server: MilvusServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SearchIndex]:
    folder = tmp_path_factory.mktemp("law")
    build_index([write_rows(folder / "rows.jsonl", ROWS)], server.address("law"))
    return folder, open_index(server.address("law"))


@settings(max_examples=25, deadline=None)
@given(FILTERS, st.frozensets(st.sampled_from(GROUPS)), st.lists(st.sampled_from(WORDS), min_size=1, max_size=2))
def test_a_search_within_a_scope_finds_what_an_index_of_those_documents_alone_finds(
    law: tuple[Path, SearchIndex], drawn: Filter, groups: frozenset[str], words: list[str]
) -> None:
    (folder, index), (where, holds) = law, drawn
    rows = [row for row in ROWS if holds(row) and ("allowed" not in row or groups & {*row["allowed"]})]
    scope, query = Scope(where, groups), " ".join(words)
    found = index.search_many([query], len(ROWS), scope)[0]
    assert {passage.id for passage in found} == {row["id"] for row in rows if {*words} & {*row["text"].split()}}
    logical = search_logical(
        index, " OR ".join(f'"{word}"' for word in dict.fromkeys([*words, "cat"])), 60, scope=scope
    )
    expected = {row["id"] for row in rows if {*words, "cat"} & {*row["text"].split()}}
    assert {passage.id for passage in logical} == expected and logical.scored == (len(expected), len(rows))
    assert index.count_found(scope) == len(rows)
    if rows:
        part = write_rows(folder / "part.jsonl", [{**row, "allowed": ["*"]} for row in rows])
        build_index([part], folder / "part")
        alone = Index.open(folder / "part").search(query, len(ROWS))
        assert {passage.id for passage in alone} == {passage.id for passage in found}


def test_every_filter_finds_what_it_finds_in_a_folder(server: MilvusServer, tmp_path: Path) -> None:
    folder, collection = build_both(write_files(tmp_path / "f", FILES), tmp_path / "ix", server.address("yard"))
    for where, files in CASES:
        scope = Scope(where, None)
        collection.require_fields(scope)
        found = find(collection, "the dock yard", scope)
        assert found == {passage.id for passage in folder.search("the dock yard", 50, scope)}, where
        assert bool(found) == bool(files)
    for where in ("yaer = 2024", "year = 2024-01-01", "allowed = 1"):
        said = []
        for index in (folder, collection):
            with pytest.raises(InvalidRequest) as refused:
                index.require_fields(Scope(where, None))
            said.append((refused.value.message, refused.value.hint))
        assert said[0] == said[1]
    command = ["index", "search", server.address("yard"), "dock", "--where", 'team = "ops" and year = 2026', "--json"]
    assert {row["id"] for row in json.loads(CliRunner().invoke(revelator, command).output)} == {"plan.txt#0-33"}


def test_who_may_read_decides_what_is_found_opened_and_described(server: MilvusServer, tmp_path: Path) -> None:
    folder, collection = build_both(write_files(tmp_path / "f", SHELVES), tmp_path / "ix", server.address("shelves"))
    ids = find(collection, "dock", OWNER)
    assert len(ids) == 7 and len(find(collection, "dock", PUBLIC)) == 3
    for scope in SCOPES:
        assert find(collection, "dock", scope) == {passage.id for passage in folder.search("dock", 50, scope)}
        assert collection.describe(scope) == folder.describe(scope)
        assert {id: collection.open_passage(id, scope) for id in ids} == {
            id: folder.open_passage(id, scope) for id in ids
        }
        logical = search_logical(collection, '"zwillinger" OR "dock"', 50, scope=scope)
        assert logical.scored == search_logical(folder, '"zwillinger" OR "dock"', 50, scope=scope).scored
    assert "salary" not in str(collection.describe()) and "pay.md" not in str(collection.describe())
    with pytest.raises(InvalidRequest, match="there is no field") as refused:
        collection.require_fields(Scope("salary > 1"))
    assert "salary" not in (refused.value.hint or "")


def test_a_neighbour_that_may_not_be_read_is_not_shown(server: MilvusServer, tmp_path: Path) -> None:
    ids = ["a.md#0-9", "a.md#10-19", "a.md#20-29"]
    rows = [{"id": id, "title": "A", "text": f"The dock {id}.", "allowed": "hr"} for id in ids]
    rows[1]["allowed"] = "*"
    build_index([write_rows(tmp_path / "rows.jsonl", rows)], server.address("neighbours"))
    index = open_index(server.address("neighbours"))
    place, known = index.open_passage(ids[1]), index.open_passage(ids[1], HR)
    assert place and (place.passage.id, place.before, place.after) == (ids[1], None, None)
    assert known and known.before and known.after and (known.before.id, known.after.id) == (ids[0], ids[2])
    assert index.open_passage(ids[0]) is None


def test_no_text_of_a_filter_or_name_of_a_group_ends_an_expression(server: MilvusServer, tmp_path: Path) -> None:
    marks = 'x"]) or (id != "\\'
    rows = [{"title": "a", "text": "The dock.", "team": marks, "allowed": ["hr"]}, {"title": "b", "text": "The dock."}]
    build_index([write_rows(tmp_path / "rows.jsonl", rows)], server.address("marks"))
    index = open_index(server.address("marks"))
    assert len(find(index, "dock", Scope(groups=frozenset({marks})))) == 1
    assert len(find(index, "dock", Scope(f"team = {json.dumps(marks)}", None))) == 1
    assert find(index, "dock", Scope(f"team = {json.dumps(marks)}")) == set()
    assert find(index, "dock", Scope(f"team = {json.dumps(marks + 'y')}", None)) == set()


def test_what_is_said_of_a_document_later_holds_with_the_next_add(server: MilvusServer, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "files", {"a.md": "The dock.", "b.md": "---\nyear: 2020\n---\nThe dock."})
    address = server.address("later")
    build_index([folder], address)
    (folder / "a.md.yaml").write_text("allowed: hr, board\nyear: 2026\n")
    update_index([folder], address)
    index = open_index(address)
    assert index.describe()["first_documents"] == ["b.md"] and index.describe(HR)["documents"] == 2
    (folder / "b.md").write_text("The dock is large.")
    update_index([folder], address)  # what did not change stays, with its fields
    index = open_index(address)
    assert len(find(index, "dock", PUBLIC)) == 1 and len(find(index, "dock", HR)) == 2
    assert find(index, "dock", Scope("year < 2026", None)) == set() != find(index, "dock", Scope("year = 2026", None))
    assert index.manifest["fields"]["year"] == 1


def test_while_a_change_is_under_way_its_passages_are_read_by_their_groups_alone(
    server: MilvusServer, tmp_path: Path
) -> None:
    address = server.address("halfway")
    build_index([write_rows(tmp_path / "a.jsonl", [{"title": "a", "text": "The dock."}])], address)
    rows = [{"title": "b", "text": "The dock.", "allowed": ["hr"]} for _ in range(300)]
    with pytest.raises(KeyboardInterrupt):
        update_index([write_rows(tmp_path / "b.jsonl", rows)], address, progress=Stopped("writing passages", 256))
    index = open_index(address)
    assert len(find(index, "dock", PUBLIC, 500)) == 1 and len(find(index, "dock", HR, 500)) == 257


def test_more_groups_than_a_row_holds_are_refused(server: MilvusServer, tmp_path: Path) -> None:
    rows = [{"title": "a", "text": "b", "allowed": [f"group{number}" for number in range(4_097)]}]
    with pytest.raises(DataError, match=r"4,097 readers of passage .*; Milvus holds 4,096"):
        build_index([write_rows(tmp_path / "a.jsonl", rows)], server.address("many"))


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
async def test_by_vectors_the_nearest_of_the_scope_are_found(
    server: MilvusServer, encoder: str, tmp_path: Path, kind: Kind
) -> None:
    rows = make_rows(300)
    corpus = write_rows(tmp_path / "rows.jsonl", rows)
    settings = IndexSettings(kind=kind, model=encoder)
    folder, collection = build_both(corpus, tmp_path / "ix", server.address(f"near_{kind}"), settings)
    scope = Scope('year >= 2022 and team = "ops"', frozenset({"hr"}))
    among = {row["id"] for row in rows if row.get("year", 0) >= 2022 and "ops" in row.get("team", [])}
    among &= {row["id"] for row in rows if "hr" in row.get("allowed", ["hr"])}
    retriever = LocalRetriever(collection)
    assert 10 < len(among) < 60
    for query in ("red cat", '"cat" AND NOT "dog"'):
        found = await retriever.search(query, 8, scope)
        assert len(found) == 8 and {passage.id for passage in found} <= among
    if kind == "dense":
        exact = folder.search("red cat", 8, scope)
        found = collection.search_many(["red cat"], 8, scope)[0]
        assert [p.score for p in found] == pytest.approx([p.score for p in exact], abs=1e-4)
    sources: list[Source] = ["dense"] if kind == "dense" else ["dense", "bm25", "both"]
    for source in sources:
        how = LogicalSettings(source=source)
        exact, found = (search_logical(one, '"red cat" OR "dog"', 60, how, scope) for one in (folder, collection))
        scores = {passage.id: passage.score for passage in exact}
        assert found and [p.score for p in found] == pytest.approx([scores[p.id] for p in found], abs=1e-3)
    nothing = Scope("year >= 2022 and year < 2022")
    assert await retriever.search("cat", 5, nothing) == await retriever.search('"cat" OR "dog"', 5, nothing) == []
    retriever.close()
