"""The operators over a graph: embedded, and the same graph behind a SPARQL endpoint on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pyoxigraph as ox
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError, DataError, RevelatorError
from revelator.plans.operators import Call, Filter, Relate, Search
from serving.knowledge import sparql
from serving.knowledge.conditions import exclude_named
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GRAPH, GraphStore, build_graph
from serving.knowledge.operators import SourceResult, build_query
from serving.knowledge.sparql import GraphVocabulary, SparqlEndpoint
from serving.retrieval import build_index
from tests.serving.knowledge.conftest import TRIPLES
from tests.serving.knowledge.toy_web import Web

FILMS = ("Tin Comet", "Glass Harbour", "Paper Moons")


@pytest.fixture(params=["embedded", "endpoint"])
async def graph(request: pytest.FixtureRequest, films: Path, web: Web) -> AsyncIterator[GraphSource]:
    if request.param == "embedded":
        source = GraphSource(GraphStore(films))
    else:
        web.store = ox.Store.read_only(str(films / "store"))
        source = GraphSource(SparqlEndpoint(f"{web.url}/sparql", GraphVocabulary()))
    yield source
    await source.close()


async def ask(
    source: GraphSource, call: Call, ids: dict[str, dict[str, tuple[str, ...]]] | None = None
) -> SourceResult:
    return await source.find(build_query(call, ids=ids or {}), 3)


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        (Search("Tin Comet"), ["Tin Comet"]),
        (Search("No such film"), []),
        (Relate("Tin Comet", "directed by"), ["Ada Quill"]),
        (Relate("Ada Quill", "directed by", True), ["Glass Harbour", "Tin Comet"]),
        (Relate("Ada Quill", "directed by", False), []),
        (Relate("Ada Quill", "directed by"), ["Glass Harbour", "Tin Comet"]),
        (Relate("Tin Comet", "release year"), ["1987"]),
        (Relate("Bo Marsh", "Paper Moons"), ["directed by"]),
        (Relate('Say "No" \\ {x}', "directed by"), ["O'Hara"]),
        (Relate("O'Hara", "directed by"), ['Say "No" \\ {x}']),
        (Filter(("Tin Comet", "Glass Harbour", "Paper Moons"), "comedy"), ["Tin Comet", "Paper Moons"]),
        (
            Filter(("Tin Comet", "Glass Harbour", "Paper Moons"), "released after 1990"),
            ["Glass Harbour", "Paper Moons"],
        ),
        (Filter(("Tin Comet", "Glass Harbour"), "between 1990 and 1999"), ["Glass Harbour"]),
        (Filter(("Tin Comet", "Paper Moons"), "directed by Bo Marsh"), ["Paper Moons"]),
        (Filter(("Tin Comet", "Paper Moons"), "loved by everyone"), []),
        (Filter(FILMS, "after 1990 and before 2000"), ["Glass Harbour"]),
        (Filter(FILMS, "a comedy before 1990"), ["Tin Comet"]),
        (Filter(FILMS, "a comedy directed by Ada Quill"), ["Tin Comet"]),
        (Filter(FILMS, "directed by Ada Quill after 1990"), ["Glass Harbour"]),
    ],
)
async def test_an_operator_gives_the_whole_typed_list(graph: GraphSource, call: Call, answers: list[str]) -> None:
    found = await ask(graph, call)
    assert sorted(found.answers) == sorted(answers)
    assert found.note


async def test_what_an_earlier_node_found_is_not_linked_by_name_again(graph: GraphSource) -> None:
    found = await ask(graph, Search("Tin Comet"))
    ids = {graph.name: {"that film": found.ids["Tin Comet"]}}
    assert (await ask(graph, Relate("that film", "directed by"), ids)).answers == ("Ada Quill",)


async def test_a_part_of_a_name_stands_for_an_entity_only_when_it_can_be_one_alone(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("Ada Quill\tmade\tTin Comet\nAda Marsh\tmade\tPaper Moons\n$\tmade\t?\n")
    build_graph([tmp_path / "g.tsv"], tmp_path / "graph")
    source = GraphSource(GraphStore(tmp_path / "graph"))
    assert (await ask(source, Search("Quill"))).answers == ("Ada Quill",)
    assert (await ask(source, Search("tin COMET!"))).answers == ("Tin Comet",)
    assert (await ask(source, Search("Ada"))).answers == ()
    assert (await ask(source, Relate("Ada", "made"))).answers == ()
    assert (await ask(source, Search("Ada", "tin"))).answers == ("Ada Quill",)
    assert (await ask(source, Relate("$", "made"))).answers == ("?",)
    await source.close()


@pytest.mark.parametrize(
    "condition",
    [
        "not directed by Bo Marsh",
        "no later than 1994",
        "that wasn't directed by Ada Quill",
        "without Cy Vane",
        "comedy or drama",
        "neither starring Cy Vane nor Bo Marsh",
        "not without Cy Vane",
        "directed by Ada Quill, not Nobody Known",
        "not by Nobody Known, starring Cy Vane",
        "comedy and not directed by Bo Marsh",
        "not a comedy and before 1990",
        "all but comedy",
        "comedy or before 1990",
        "released in or after 1990",
        "comedy or drama and directed by Ada Quill",
        "not filmed before 1990",
        "those of Cy Vane not directed by Bo Marsh",
        "lovely ones not directed by Bo Marsh",
        "\0",
    ],
)
async def test_a_condition_that_code_is_not_sure_of_is_left_to_the_generator(films: Path, condition: str) -> None:
    source = GraphSource(GraphStore(films))
    found = await ask(source, Filter(FILMS, condition))
    await source.close()
    assert (found.answers, found.decided) == ((), False)
    assert [group[0].title for group in found.passages] == list(FILMS)


async def test_none_is_decided_only_when_the_facts_tell_of_every_entity(films: Path) -> None:
    source = GraphSource(GraphStore(films))
    none = await ask(source, Filter(FILMS, "before 1950"))
    assert (none.answers, none.decided) == ((), True)
    unknown = await ask(source, Filter((*FILMS, "No such film"), "before 1950"))
    assert (unknown.answers, unknown.decided) == ((), False)
    assert "do not tell of 1 of 4" in unknown.note
    await source.close()


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("other than tin comet", ("Glass Harbour", "Paper Moons")),
        ("not Tin Comet", ("Glass Harbour", "Paper Moons")),
        ("except Tin Comet and Paper Moons", ("Glass Harbour",)),
        ("not directed by Bo Marsh", None),
        ("besides those of 1987", None),
        ("a comedy", None),
    ],
)
def test_other_than_is_of_the_entities_themselves(condition: str, left: tuple[str, ...] | None) -> None:
    assert exclude_named(condition, FILMS) == left


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[GraphSource]:
    """One genre with more films than a query gives rows, two films of one label, one director."""
    lines = [f"Film {i}\thas_genre\tDrama\n" for i in range(30)]
    (tmp_path / "g.tsv").write_text("".join(lines) + "Film 1\tdirected_by\tAda Quill\n")
    build_graph([tmp_path / "g.tsv"], tmp_path / "graph")
    source = GraphSource(GraphStore(tmp_path / "graph"))
    yield source
    await source.close()


async def test_a_list_that_is_cut_off_says_so_and_is_counted_whole(
    hub: GraphSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Relate("Drama", "has genre", True)
    for rows, truncated in ((29, True), (30, False)):
        monkeypatch.setattr("serving.knowledge.graph.ROWS", rows)
        found = await ask(hub, call)
        assert (len(found.answers), found.truncated, found.count) == (rows, truncated, 30)


async def test_an_entity_of_many_facts_hides_none_of_anothers(
    hub: GraphSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.knowledge.graph.FACT_ROWS", 10)
    found = await ask(hub, Filter(("Drama", "Film 1", "Film 2"), "directed by Ada Quill"))
    assert (found.answers, found.truncated) == (("Film 1",), True)
    assert found.note == "the first 10 facts of an entity, which do not tell of 2 of 3"
    assert not (await ask(hub, Filter(("Film 1", "Film 2"), "directed by Ada Quill"))).truncated


async def test_what_relates_two_entities_is_looked_for_at_every_head(hub: GraphSource) -> None:
    heads = tuple(f"Film {i}" for i in reversed(range(30)))
    query = build_query(Relate("{1*}", "Ada Quill"), values={"1*": heads})
    assert (await hub.find(query, 3)).answers == ("directed by",)


READ_TRIPLES = 30  # of `films`: 13 facts, and a label for each name

HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ['" . ?s ?p ?o } #', "> } DELETE WHERE { ?s ?p ?o } #", "\\", "'''", '"""', "\n\r\t", "<x>", "\udcff", "?x"]
    ),
)


@pytest.fixture(scope="module")
def opened(films: Path) -> tuple[ox.Store, GraphSource]:
    return ox.Store.read_only(str(films / "store")), GraphSource(GraphStore(films))


@settings(max_examples=60)
@given(name=HOSTILE, to=HOSTILE)
def test_no_text_becomes_part_of_a_query(opened: tuple[ox.Store, GraphSource], name: str, to: str) -> None:
    """Every compiled query, whatever the name, is one SELECT that parses, and reads nothing but what is called so."""
    store, source = opened
    for compiled in (
        sparql.build_entities_query(name, sparql.WIKIDATA, 20),
        sparql.build_relations_query(to, sparql.WIKIDATA, 20),
        sparql.build_entities_query(name, GraphVocabulary(), 20),
    ):
        assert isinstance(store.query(compiled), ox.QuerySolutions)
        assert compiled.startswith("SELECT DISTINCT ?x ") and compiled.endswith("LIMIT 20")
        assert list(store.query(compiled)) == []

    names = {text for head, relation, tail in TRIPLES for text in (head, relation.replace("_", " "), tail)}
    assert set(asyncio.run(ask(source, Relate(name or "x", to or "x"))).answers) <= names
    assert len(store) == READ_TRIPLES


def test_an_iri_that_is_none_is_refused_before_any_query() -> None:
    with pytest.raises(ValueError):
        ox.NamedNode("http://a> } #")


async def test_a_descriptor_tells_entities_of_one_name_apart(tmp_path: Path) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    lines = [
        f'<urn:1> {label} "Mercury"@en .',
        f'<urn:2> {label} "Mercury"@en .',
        f'<urn:2> {label} "Merkur"@de .',
        f'<urn:type> {label} "kind" .',
        '<urn:1> <urn:type> "chemical element" .',
        '<urn:2> <urn:type> "planet of the Solar System" .',
        '<urn:2> <urn:foundedIn> "1631" .',
    ]
    (tmp_path / "g.nt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    manifest = build_graph([tmp_path / "g.nt.gz"], tmp_path / "graph", vocabulary=GraphVocabulary(language="en"))
    assert manifest["relations"] == ["founded In", "kind"]
    source = GraphSource(GraphStore(tmp_path / "graph"))
    assert (await ask(source, Search("Mercury", "planet"))).ids == {"Mercury": ("urn:2",)}
    assert set((await ask(source, Search("mercury"))).ids["Mercury"]) == {"urn:1", "urn:2"}
    assert (await ask(source, Search("Merkur"))).answers == ()
    assert (await ask(source, Relate("Mercury", "kind"), {"graph": {"Mercury": ("urn:2",)}})).answers == (
        "planet of the Solar System",
    )
    await source.close()


async def test_wikidata_is_asked_by_labels_and_by_the_claims_of_its_properties(web: Web) -> None:
    web.store = store = ox.Store()
    rdfs, wd, wdt = (
        "http://www.w3.org/2000/01/rdf-schema#",
        "http://www.wikidata.org/entity/",
        "http://www.wikidata.org/prop/direct/",
    )
    store.load(
        f"""@prefix rdfs: <{rdfs}> . @prefix wd: <{wd}> . @prefix wdt: <{wdt}> .
        @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
        wd:Q1 rdfs:label "UHF"@en ; wdt:P57 wd:Q2 ; wdt:P577 "1989-07-21T00:00:00Z"^^xsd:dateTime .
        wd:Q2 rdfs:label "Jay Levey"@en, "Jay Levey"@de .
        wd:P57 rdfs:label "director"@en ; <http://www.w3.org/2004/02/skos/core#altLabel> "directed by"@en ;
            <http://wikiba.se/ontology#directClaim> wdt:P57 .
        wd:P577 rdfs:label "publication date"@en ; <http://wikiba.se/ontology#directClaim> wdt:P577 .""".encode(),
        ox.RdfFormat.TURTLE,
    )
    source = GraphSource(SparqlEndpoint(f"{web.url}/sparql"), "wikidata")
    assert (await ask(source, Relate("UHF", "directed by"))).answers == ("Jay Levey",)
    assert (await ask(source, Relate("Jay Levey", "director"))).answers == ("UHF",)
    assert (await ask(source, Relate("UHF", "publication date"))).answers == ("1989-07-21",)
    assert (await ask(source, Relate("UHF", "Jay Levey"))).answers == ("director",)
    await source.close()


@pytest.mark.parametrize(
    ("reply", "says"), [(503, "503"), (b"<html>", "no SPARQL result"), ({"boolean": True}, "no SPARQL")]
)
async def test_an_endpoint_that_answers_otherwise_is_unavailable(web: Web, reply: object, says: str) -> None:
    web.replies["/sparql"] = reply
    source = GraphSource(SparqlEndpoint(f"{web.url}/sparql"))
    with pytest.raises(RevelatorError, match=says):
        await ask(source, Relate("UHF", "director"))
    await source.close()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("g.tsv", "a\tb\tc\nd\te\n", "g.tsv:2: 2 columns"),
        ("g.nt", "<urn:a> <urn:b> .\n", "cannot be read"),
        ("g.csv", "a,b,c", "neither N-Triples nor TSV"),
        ("g.tsv", "\n", "no triple"),
    ],
)
def test_a_broken_file_leaves_nothing_behind(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=says):
        build_graph([tmp_path / name], tmp_path / "graph")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_folder_that_is_no_graph_is_neither_opened_nor_overwritten(tmp_path: Path, films: Path) -> None:
    with pytest.raises(ArtifactError, match="not a graph"):
        GraphStore(tmp_path)
    (tmp_path / "g.tsv").write_text("a\tb\tc\n")
    with pytest.raises(ConfigError, match="is not a graph"):
        build_graph([tmp_path / "g.tsv"], tmp_path)


def test_the_triples_that_are_counted_are_those_of_the_input(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tin\tb\na\tin\tb\na\tin\tc\n")
    (tmp_path / "b.tsv").write_text("b\tin\tc\n")
    (tmp_path / "c.nt").write_text('<http://x/d> <http://www.w3.org/2000/01/rdf-schema#label> "d" .\n')
    manifest = build_graph([tmp_path / name for name in ("a.tsv", "b.tsv", "c.nt")], tmp_path / "graph")
    assert (manifest["triples"], manifest["labels"]) == (4, 5)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("name", ["labels.sqlite", "store/MANIFEST-*", "store/*.sst"])
@pytest.mark.parametrize("damage", [_cut, _overwrite, Path.unlink])
async def test_a_damaged_graph_is_refused_by_name(
    tmp_path: Path, films: Path, name: str, damage: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(films, tmp_path / "graph")
    for file in folder.glob(name):
        damage(file)
    with pytest.raises(ArtifactError, match=name.partition("*")[0]):
        GRAPH.read_manifest(folder, verify=True)
    with pytest.raises(ArtifactError):
        await ask(GraphSource(GraphStore(folder)), Relate("Tin Comet", "directed by"))


def test_the_command_loads_asks_and_says_what_it_did_not_find(tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("Tin Comet\tdirected_by\tAda Quill\n")
    call = CliRunner().invoke
    graph = str(tmp_path / "graph")
    loaded = call(revelator, ["index", "build", str(tmp_path / "g.tsv"), "--kind", "graph", "--out", graph])
    assert "1 triples, 3 labels" in loaded.output, loaded.output
    search = ["index", "search", graph]
    assert call(revelator, [*search, "tin comet"]).output == "Tin Comet\n"
    assert call(revelator, [*search, "Tin Comet", "directed by"]).output == "Ada Quill\n"
    assert json.loads(call(revelator, [*search, "Ada Quill", "director", "--json"]).output)["answers"] == ["Tin Comet"]
    assert call(revelator, [*search, "Nobody", "directed by"]).output == "no answer: no node is called Nobody\n"
    assert "directed by" in call(revelator, ["index", "info", graph]).output
    assert "every file is as it was built" in call(revelator, ["index", "info", graph]).output


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--kind", "graph", "--chunk", "80"], "--chunk"),
        (["--kind", "graph", "--query-prefix", "q: "], "--query-prefix"),
        (["--kind", "graph", "--to", "milvus://127.0.0.1:19530/g"], "--out milvus://127.0.0.1:19530/g"),
        (["--language", "en"], "--language"),
    ],
)
def test_an_option_of_another_kind_of_index_is_refused(tmp_path: Path, options: list[str], where: str) -> None:
    (tmp_path / "g.tsv").write_text("Tin Comet\tdirected_by\tAda Quill\n")
    command = ["index", "build", str(tmp_path / "g.tsv"), "--out", str(tmp_path / "graph"), *options]
    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(revelator, command, catch_exceptions=False)
    assert refused.value.where == where and not (tmp_path / "graph").exists()


def test_a_graph_is_built_again_and_not_updated(films: Path) -> None:
    with pytest.raises(ConfigError, match="not changed in place"):
        CliRunner().invoke(revelator, ["index", "update", str(films), "more.tsv"], catch_exceptions=False)


def test_passages_have_no_relations_and_a_graph_no_fields(tmp_path: Path, films: Path) -> None:
    (tmp_path / "log.txt").write_text("The ship was sold.")
    build_index([tmp_path / "log.txt"], tmp_path / "index")
    for place, options in (
        (tmp_path / "index", ["directed by"]),
        (films, ["-k", "3"]),
        (films, ["--where", "year > 1990"]),
    ):
        done = CliRunner().invoke(revelator, ["index", "search", str(place), "Tin Comet", *options])
        assert done.exit_code == 2 and "graph" in done.output
