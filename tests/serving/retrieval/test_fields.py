"""Fields of documents, filters over them, and who may read: what a search finds is of its scope, whatever its kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.cli import revelator
from revelator.errors import DataError, InvalidRequest
from revelator.folders import MANIFEST
from serving.protocols import OWNER, PUBLIC, Scope
from serving.retrieval import Index, IndexSettings, LocalRetriever, build_index, update_index
from serving.retrieval.columns import NUMBERS, VALUES
from serving.retrieval.dense import EXACT_AMONG, find_nearest, write_neighbours
from serving.retrieval.filters import LONGEST, parse_filter
from serving.retrieval.logical_search import search_logical
from serving.retrieval.neighbours import Neighbours
from tests.serving.retrieval.conftest import make_pdf

HR = Scope(groups=frozenset({"hr"}))
DATED = b"/CreationDate(D:20240315120000Z)/ModDate(D:20250102)"
MAIL = "From: ana@yard.example\nDate: Tue, 20 May 2025 09:30:00 +0200\nSubject: Dock\n\nThe dock is closed.\n"


def write_files(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def index_files(tmp_path: Path, files: dict[str, str | bytes]) -> Index:
    build_index([write_files(tmp_path / "files", files)], tmp_path / "index")
    return Index.open(tmp_path / "index")


def find(index: Index, where: str = "", groups: frozenset[str] | None = None, query: str = "the dock yard") -> set[str]:
    """The files that a search finds."""
    scope = Scope(where, groups)
    index.columns.require_fields(scope)
    return {str(index.columns.read(index.passages.find(p.id) or 0)["path"]) for p in index.search(query, 50, scope)}


FILES: dict[str, str | bytes] = {
    "notes/crane.md": "---\ntitle: Crane\nyear: 2024\nteam: ops\ntags: [lift, dock]\ndraft: false\n---\n"
    "The dock has a crane.\n",
    "notes/old.md": "---\nyear: 2019\nLast review: 2020-02-03\nteam: yard\n---\nThe dock had two cranes.\n",
    "plan.txt": "The dock will have three cranes.\n",
    "plan.txt.yaml": "year: 2026\nteam: ops\n",
    "mail.eml": MAIL,
    "rows.jsonl": '{"title": "Gate", "text": "The dock has a gate.", "year": 2025, "open": true, "tags": ["gate"]}\n',
    "list.csv": "title,text,year,team\nPier,The dock has a pier.,2023,yard\n",
}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return index_files(tmp_path_factory.mktemp("yard"), FILES)


CASES: list[tuple[str, set[str]]] = [
    ("year >= 2024", {"notes/crane.md", "plan.txt", "rows.jsonl"}),
    ('year > 2019 and year < 2026 and team = "yard"', {"list.csv"}),
    ('team != "ops"', {"notes/old.md", "list.csv"}),
    ('not team = "ops"', {"notes/old.md", "list.csv", "mail.eml", "rows.jsonl"}),
    ('tags = "dock" or tags in ("gate", "sea")', {"notes/crane.md", "rows.jsonl"}),
    ('TAGS = "lift" AND tags = "dock"', {"notes/crane.md"}),
    ("last_review < 2020-02-04", {"notes/old.md"}),
    ("date = 2025-05-20", {"mail.eml"}),
    ("date > 2025-05-20", set()),
    ("date >= 2025-05-20T07:30:00", {"mail.eml"}),
    ("draft = false or open = true", {"notes/crane.md", "rows.jsonl"}),
    ('path like "notes/*" and not (year = 2019)', {"notes/crane.md"}),
    ('type in ("eml", "csv")', {"mail.eml", "list.csv"}),
]


@pytest.mark.parametrize(("where", "found"), CASES)
def test_a_filter_keeps_the_documents_whose_fields_fulfil_it(yard: Index, where: str, found: set[str]) -> None:
    assert find(yard, where) == found


def test_a_sidecar_is_no_document_and_one_without_a_document_is_named(tmp_path: Path) -> None:
    files = {"plan.txt": "The dock.", "plan.txt.yaml": "year: 2026", "lost.md.yaml": "year: 1"}
    index = index_files(tmp_path, files)
    assert index.manifest["unread"] == {"lost.md.yaml": "not a kind of file that is read"}
    assert index.manifest["fields"] == {"path": 1, "type": 1, "year": 1}


@pytest.mark.parametrize("ending", [".yaml", ".yml"])
def test_a_sidecar_may_end_in_either_spelling_of_yaml(tmp_path: Path, ending: str) -> None:
    files = {"a.md": "The dock.", f"a.md{ending}": "allowed: hr\n", "b.md": "The yard."}
    index = index_files(tmp_path, files)
    assert index.manifest["unread"] == {}
    assert find(index, groups=frozenset()) == {"b.md"} and find(index, groups=HR.groups) == {"a.md", "b.md"}
    update_index([write_files(tmp_path / "files", {f"a.md{ending}": "allowed: board\n"})], tmp_path / "index")
    assert find(Index.open(tmp_path / "index"), groups=HR.groups) == {"b.md"}


@pytest.mark.parametrize("ending", ["md", "markdown", "txt", "text"])
def test_a_head_says_who_may_read_the_document(tmp_path: Path, ending: str) -> None:
    files = {f"a.{ending}": "---\nyear: 2024\nallowed: [hr]\n---\nThe dock.\n", "b.md": "The yard."}
    index = index_files(tmp_path, files)
    assert find(index, groups=frozenset()) == {"b.md"}
    assert find(index, "year = 2024", groups=HR.groups) == {f"a.{ending}"}


def test_a_pdf_tells_its_dates_and_pages_and_its_citation_file_page_and_section(tmp_path: Path) -> None:
    pdf = make_pdf("The dock employs ninety people.")
    with_dates = pdf.replace(b"trailer <<", b"trailer <</Info<<" + DATED + b">>")
    index = index_files(tmp_path, {"report.pdf": with_dates, "crane.md": FILES["notes/crane.md"]})
    assert find(index, "page = 1 and created = 2024-03-15 and modified >= 2025-01-01") == {"report.pdf"}
    [passage] = index.search("dock", 5, Scope('type = "pdf"'))
    assert passage.name == "report in report.pdf, page 1"
    [crane] = index.search("dock", 5, Scope("year = 2024"))
    assert crane.name == "Crane in crane.md"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("colour = 1", "there is no field 'colour'"),
        ('allowed = "hr"', "there is no field 'allowed'"),
        ('year = "ops"', "year holds numbers, and 'ops' is text"),
        ("team >= 3", "team holds text, and '3' is a number"),
        ('team > "ops"', "team holds text, which have no order"),
        ("last_review > 2020", "last_review holds dates, and '2020' is a number"),
        ('year like "20*"', "year holds numbers"),
        ("date = 2025-02-31", "2025-02-31 is no day"),
        ("team = ops", "cannot be read at character 8"),
        ("year >=", "cannot be read at character"),
        ("year = 1 " + "or year = 2 " * LONGEST, "characters; at most"),
        (r'team = "\q"', "is no text"),
    ],
)
def test_a_filter_that_fits_no_field_is_refused_with_the_reason(yard: Index, where: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)) as refused:
        find(yard, where)
    assert refused.value.where == "where" and refused.value.hint


def test_a_filter_as_deep_as_its_length_allows_is_put_to_documents(yard: Index) -> None:
    deep = "(year=1 or (not year=2 and " * 34 + "year > 2020" + "))" * 34
    assert len(deep) <= LONGEST
    assert find(yard, deep) == {"notes/crane.md", "plan.txt", "rows.jsonl", "list.csv"}


@pytest.mark.parametrize(
    "files",
    [
        {"a.md": "---\nallowed: {hr: yes}\n---\nThe dock.\n"},
        {"a.md": "---\nallowed: [hr]\nallowed: [all]\n---\nThe dock.\n"},
        {"a.md": "---\nallowed: [hr\nteam: x\n---\nThe dock.\n"},
        {"a.md": "---\nAllowed: hr\n\nThe dock.\n"},
        {"a.md": "\n---\nallowed: hr\n---\nThe dock.\n"},
        {"a.md": "---\nallowed: [hr, 'no such group!']\n---\nThe dock.\n"},
        {"a.md": "---\nallowed: [hr]\nALLOWED: [all]\n---\nThe dock.\n"},
        {"a.md": "The dock.", "a.md.yaml": "- allowed\n"},
        {"a.md": "The dock.", "a.md.yaml": "allowed: [hr\n"},
        {"a.md": "The dock.", "a.md.yaml": "allowed: [hr]\n", "a.md.yml": "allowed: [hr]\n"},
        {"a.csv": "name,allowed\nThe dock,hr\n"},
    ],
)
def test_a_document_whose_readers_cannot_be_read_is_left_out_and_named(tmp_path: Path, files: dict[str, str]) -> None:
    index = index_files(tmp_path, {**files, "b.md": "The yard."})
    assert find(index) == {"b.md"} and list(index.manifest["unread"].values()) != []


def test_a_row_whose_readers_cannot_be_read_ends_the_build(tmp_path: Path) -> None:
    rows = write_files(tmp_path, {"a.jsonl": '{"title": "a", "text": "b", "allowed": null}\n'}) / "a.jsonl"
    with pytest.raises(DataError, match="no list of groups"):
        build_index([rows], tmp_path / "index")


def test_a_sidecar_that_is_a_link_keeps_its_document_out(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "files", {"a.md": "The dock.", "b.md": "The yard."})
    (tmp_path / "elsewhere.yaml").write_text("allowed: [hr]\n")
    (folder / "a.md.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    build_index([folder], tmp_path / "index")
    index = Index.open(tmp_path / "index")
    assert find(index) == {"b.md"} and "is a link" in index.manifest["unread"]["a.md"]


SHELVES: dict[str, str | bytes] = {
    "open.md": "# Dock\n\nThe dock is open to all.\n",
    "everybody.md": "---\nallowed: ['*']\n---\nThe dock belongs to everybody.\n",
    "pay.md": "---\nallowed: [hr, board]\nsalary: 4000\n---\n# Zwillinger\n\nThe dock pays Zwillinger well.\n",
    "nobody.md": "---\nallowed: []\n---\nThe dock has a secret.\n",
    "rows.csv": "title,text,allowed\n"
    "Gate,The dock has a gate.,hr;ops\nPier,The dock has a pier.,*\nSea,The dock is wet.,\n",
}


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return index_files(tmp_path_factory.mktemp("shelves"), SHELVES)


def test_who_may_read_decides_what_a_search_finds_and_no_group_is_the_default(shelves: Index) -> None:
    def list_titles(scope: Scope) -> set[str]:
        return {passage.title for passage in shelves.search("dock", 50, scope)}

    everybody = {"Dock", "everybody", "Pier"}
    assert list_titles(PUBLIC) == everybody == {passage.title for passage in shelves.search("dock", 50)}
    assert list_titles(Scope(groups=frozenset({"sales"}))) == everybody
    assert list_titles(HR) == everybody | {"Zwillinger", "Gate"}
    assert list_titles(OWNER) == everybody | {"Zwillinger", "Gate", "nobody", "Sea"}


@given(st.lists(st.sampled_from(["the", "of", "🙂", "?!", "—"])), st.sampled_from([PUBLIC, HR, OWNER]))
def test_a_query_without_a_word_finds_nothing_whoever_asks(shelves: Index, words: list[str], scope: Scope) -> None:
    assert shelves.search(" ".join(words), 9, scope) == []


def test_nothing_that_an_index_says_tells_of_what_may_not_be_read(shelves: Index) -> None:
    secret = shelves.search("zwillinger", 9, OWNER)[0]
    assert shelves.search("zwilinger", 9, HR).respelled == {"zwilinger": ["zwillinger"]}
    for query in ("zwilinger", "zwillinger", '"zwillinger" OR "dock"'):
        found = shelves.search(query, 9) if "OR" not in query else search_logical(shelves, query, 9)
        assert "willinger" not in str([*found, found.respelled]).lower() and found.scored in (None, (3, 3))
    assert shelves.open_passage(secret.id) is None and shelves.open_passage(secret.id, HR)
    told, known = shelves.describe(), shelves.describe(HR)
    assert "pay.md" not in str(told) and "salary" not in str(told) and told["passages"] == 3
    assert "pay.md" in known["first_documents"] and known["fields"]["salary"] == ["number"]
    for where in ("salary > 1", "allowed = 1"):
        with pytest.raises(InvalidRequest, match="there is no field") as refused:
            shelves.columns.require_fields(Scope(where))
        assert "salary" not in (refused.value.hint or "")


def test_a_passage_s_neighbour_that_may_not_be_read_is_not_shown(tmp_path: Path) -> None:
    ids = ["a.md#0-9", "a.md#10-19", "a.md#20-29"]
    rows = [{"id": id, "title": "A", "text": f"The dock {id}."} for id in ids]
    rows[0]["allowed"] = rows[2]["allowed"] = "hr"
    index = index_files(tmp_path, {"rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    place, known = index.open_passage(ids[1]), index.open_passage(ids[1], HR)
    assert place and (place.passage.id, place.before, place.after) == (ids[1], None, None)
    assert known and known.before and known.after and (known.before.id, known.after.id) == (ids[0], ids[2])
    assert index.open_passage(ids[0]) is None


def test_what_is_said_beside_a_document_later_holds_with_the_next_add(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "files", {"a.md": "The dock.", "b.md": "The yard."})
    build_index([folder], tmp_path / "index")
    (folder / "a.md.yaml").write_text("allowed: hr, board\n")
    info = CliRunner().invoke(revelator, ["index", "info", str(tmp_path / "index"), "--json"])
    assert json.loads(info.output)["changed"] == ["a.md"]
    update_index([folder], tmp_path / "index")
    index = Index.open(tmp_path / "index")
    assert find(index, groups=frozenset()) == {"b.md"} and find(index, groups=frozenset({"board"})) == {"a.md", "b.md"}
    assert update_index([folder], tmp_path / "index")["version"] == index.version
    (folder / "b.md").write_text("The yard is large.")
    update_index([folder], tmp_path / "index")  # what did not change comes from the index, with its fields
    assert find(Index.open(tmp_path / "index"), groups=frozenset()) == {"b.md"}


def test_an_index_of_an_earlier_version_is_searched_and_learns_fields_with_the_next_add(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "files", {"a.md": "---\nyear: 2024\n---\nThe dock.\n", "b.md": "The yard."})
    build_index([folder], tmp_path / "index")
    make_earlier(tmp_path / "index")
    index = Index.open(tmp_path / "index")
    assert len(index.search("dock yard", 9)) == 2 and index.describe()["fields"] == {}
    with pytest.raises(InvalidRequest, match="there is no field 'year'"):
        index.columns.require_fields(Scope("year = 2024"))
    update_index([folder / "b.md"], tmp_path / "index")
    assert find(Index.open(tmp_path / "index"), 'path = "a.md"') == {"a.md"}
    update_index([folder], tmp_path / "index")
    make_earlier(tmp_path / "index")
    build_index([folder], tmp_path / "index")
    assert find(Index.open(tmp_path / "index"), "year = 2024") == {"a.md"}


def make_earlier(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["fields"]
    for name in (NUMBERS, VALUES):
        (folder / name).unlink()
        del manifest["files"][name], manifest["sizes"][name]
    (folder / MANIFEST).write_text(json.dumps(manifest))


# ---- the law: a search within a scope finds what the same search finds in an index of the readable matching documents

WORDS = "red green blue cat dog bird fish tree house river sea city".split()  # noqa: SIM905
TEAMS, GROUPS = ("ops", "yard", "sales"), ("hr", "board")


def make_rows(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(3)
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"id": str(number), "title": "t", "text": " ".join(random.choice(WORDS, 5))}
        if random.random() < 0.8:
            row["year"] = int(random.integers(2018, 2027))
        if random.random() < 0.8:
            row["team"] = [str(team) for team in random.choice(TEAMS, 2)]
        if random.random() < 0.4:
            row["allowed"] = [str(group) for group in random.choice(GROUPS, random.integers(0, 3))]
        rows.append(row)
    return rows


ROWS = make_rows(60)
Filter = tuple[str, Callable[[dict[str, Any]], bool]]


def compare_years(sign: str, year: int) -> Filter:
    holds = {"<": int.__lt__, ">=": int.__ge__, "=": int.__eq__, "!=": int.__ne__}[sign]
    return f"year {sign} {year}", lambda row: "year" in row and holds(row["year"], year)


def compare_teams(is_equal: bool, team: str) -> Filter:
    sign = "=" if is_equal else "!="
    return f'team {sign} "{team}"', lambda row: "team" in row and (team in row["team"]) == is_equal


def join(kind: str, left: Filter, right: Filter) -> Filter:
    both = kind == "and"
    return (
        f"({left[0]} {kind} {right[0]})",
        lambda row: (left[1](row) and right[1](row)) if both else (left[1](row) or right[1](row)),
    )


FILTERS = st.recursive(
    st.one_of(
        st.builds(compare_years, st.sampled_from(["<", ">=", "=", "!="]), st.integers(2017, 2027)),
        st.builds(compare_teams, st.booleans(), st.sampled_from(TEAMS)),
    ),
    lambda inner: st.one_of(
        st.builds(join, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(lambda one: (f"not {one[0]}", lambda row: not one[1](row)), inner),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("law")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    build_index([folder / "rows.jsonl"], folder / "bm25")
    return folder


@settings(max_examples=25)
@given(FILTERS, st.frozensets(st.sampled_from(GROUPS)), st.lists(st.sampled_from(WORDS), min_size=1, max_size=2))
def test_a_search_within_a_scope_finds_what_an_index_of_those_documents_alone_finds(
    whole: Path, drawn: Filter, groups: frozenset[str], words: list[str]
) -> None:
    where, holds = drawn
    index = Index.open(whole / "bm25")
    rows = [row for row in ROWS if holds(row) and ("allowed" not in row or groups & {*row["allowed"]})]
    query = " ".join(words)
    expected = {row["id"] for row in rows if {*words} & {*row["text"].split()}}
    scope = Scope(where, groups)
    assert {passage.id for passage in index.search(query, len(ROWS), scope)} == expected
    logical = " OR ".join(f'"{word}"' for word in dict.fromkeys([*words, "cat"]))
    cats = {row["id"] for row in rows if {*words, "cat"} & {*row["text"].split()}}
    assert {passage.id for passage in search_logical(index, logical, len(ROWS), scope=scope)} == cats
    if rows:
        (whole / "part.jsonl").write_text("".join(json.dumps({**row, "allowed": ["*"]}) + "\n" for row in rows))
        build_index([whole / "part.jsonl"], whole / "part")
        assert {passage.id for passage in Index.open(whole / "part").search(query, len(ROWS))} == expected


def test_a_filter_is_the_same_condition_however_it_is_spaced() -> None:
    assert parse_filter('a=1 AND not b="x"') == parse_filter('A = 1 and NOT (B = "x")')
    assert parse_filter("  ") is None


def make_vectors(count: int) -> np.ndarray:
    vectors = np.random.default_rng(5).normal(size=(count, 16)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("factory", ["HNSW16", "IVF16,Flat", "SQ8"])
def test_of_an_approximate_index_only_rows_of_the_mask_are_found(tmp_path: Path, factory: str) -> None:
    matrix = make_vectors(3_000)
    write_neighbours(tmp_path, matrix, factory, lambda *_: None)
    among = np.random.default_rng(1).random(len(matrix)) < 0.2
    queries = make_vectors(20)
    _, places = Neighbours.open(tmp_path, matrix).search(queries, 5, among)
    assert among[places[places >= 0]].all() and (factory == "SQ8" or (places >= 0).mean() > 0.9)
    exact_scores, exact = find_nearest(matrix, queries, 5, among)
    assert among[exact].all()
    rows = np.flatnonzero(among)
    alone_scores, alone = find_nearest(matrix[rows], queries, 5)
    assert np.array_equal(rows[alone], exact) and np.allclose(alone_scores, exact_scores)


@pytest.mark.parametrize(
    ("kind", "factory"), [("dense", ""), ("hybrid", ""), ("dense", "HNSW16"), ("hybrid", "IVF4,Flat")]
)
async def test_by_vectors_the_nearest_of_the_scope_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, factory: str
) -> None:
    pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")
    from tests.serving.retrieval.toy_encoder import write_encoder

    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in make_rows(300)))
    model = str(write_encoder(tmp_path / "encoder"))
    build_index([tmp_path / "rows.jsonl"], tmp_path / "ix", IndexSettings(kind=kind, model=model, faiss=factory))
    index = Index.open(tmp_path / "ix")
    retriever = LocalRetriever(index)
    scope = Scope('year >= 2022 and team = "ops"', frozenset({"hr"}))
    among = index.columns.open_view(scope).found
    assert among is not None and index.vectors and 10 < among.sum() < 60
    for few in (EXACT_AMONG, 0):  # compared with all of the scope, and by the index that there is
        monkeypatch.setattr("serving.retrieval.dense.EXACT_AMONG", few)
        for query in ("red cat", '"cat" AND NOT "dog"'):
            found = await retriever.search(query, 8, scope)
            assert len(found) == 8 and all(among[int(passage.id)] for passage in found)
        vector = index.encoder.encode_queries(["red cat"])
        _, places = index.vectors.search(vector, 8, among)
        assert among[places].all() and len(set(places[0])) == 8
        if not factory:
            assert np.array_equal(places, find_nearest(index.vectors.matrix, vector, 8, among)[1])
    nothing = Scope("year >= 2022 and year < 2022")
    assert await retriever.search("cat", 5, nothing) == await retriever.search('"cat" OR "dog"', 5, nothing) == []
    retriever.close()


def test_the_command_searches_within_a_filter_and_says_what_is_wrong_with_one(yard: Index) -> None:
    def search(where: str) -> Any:
        return CliRunner().invoke(revelator, ["index", "search", str(yard.folder), "dock", "--where", where, "--json"])

    assert {row["id"] for row in json.loads(search('team = "ops" and year = 2026').output)} == {"plan.txt#0-33"}
    refused = search("yaer = 2026")
    assert refused.exit_code == 1 and "fields are date, draft, last_review" in str(refused.exception or refused.output)
