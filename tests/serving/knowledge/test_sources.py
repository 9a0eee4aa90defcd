"""Several sources at once: selection, timeouts, failures, what the trace is told; and the file that names them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from revelator.errors import ArtifactError, ConfigError, InvalidRequest, Unavailable
from revelator.plans.art import Art
from revelator.plans.operators import Relate
from revelator.tasks import TASKS, SelectInput
from serving.circuit_breaker import RetryPolicy
from serving.home.config import read_settings
from serving.home.configure import configure
from serving.knowledge.config import open_sources, read_sources
from serving.knowledge.operators import Query, SourceResult, build_direct_query, build_leaf_query, build_query
from serving.knowledge.selection import SourceSettings
from serving.knowledge.sources import Sources
from serving.knowledge.text_source import TextSource
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.generators import EndpointGenerator
from serving.protocols import Completion, Scope
from serving.retrieval import Index, LocalRetriever, build_index
from serving.retrieval.logical_search import LogicalSettings, read_logical_options
from tests.conftest import Endpoint
from tests.serving.executor.world import Toy
from tests.serving.knowledge.toy_sources import ToyGenerator, ToySource, run_tree_alone
from tests.serving.knowledge.toy_web import Web

TREE = Art("Who directed UHF?", Relate("UHF", "directed by"))
QUERY = build_query(Relate("UHF", "directed by"), "Who directed UHF?")


FIRST = SourceSettings(evidence="first")


async def test_a_slow_and_a_failing_source_are_left_out_and_named_in_the_trace() -> None:
    good = ToySource("text", says={"*": ["Jay Levey directed UHF."]})
    slow = ToySource("web", "web", gate=asyncio.Event(), timeout=0.05)
    broken = ToySource("graph", "graph", error=Unavailable("the store is gone", where="disk"))
    generator = ToyGenerator({"Who directed UHF?": ["Jay Levey"]})
    trace = await run_tree_alone(TREE, Sources([good, slow, broken]), generator)
    assert trace.answers == ["Jay Levey"]
    told = {report["source"]: report for report in trace.nodes[0].detail["sources"]}
    assert told["text"]["outcome"] == "passages"
    assert (told["web"]["outcome"], told["web"]["error"]) == ("late", "left out after 0.05 s")
    assert (told["graph"]["outcome"], told["graph"]["error"]) == ("failed", "disk: the store is gone")
    assert trace.usage.retrievals >= 3
    assert slow.live == 0


async def test_any_exception_of_a_source_is_its_own() -> None:
    good, bad = ToySource("text", says={"*": ["p"]}), ToySource("web", "web", error=ZeroDivisionError("x"))
    trace = await run_tree_alone(TREE, Sources([good, bad]), ToyGenerator({"Who directed UHF?": ["J"]}))
    assert trace.answers == ["J"]
    assert trace.nodes[0].detail["sources"][1]["error"] == "ZeroDivisionError: x"


@dataclass
class Recovering(ToySource):
    """Is down for the first `down` calls."""

    down: int = 2

    async def find(self, query: Query, k: int) -> SourceResult:
        if len(self.asked) < self.down:
            self.asked += query.texts
            raise Unavailable("restarting")
        return await super().find(query, k)


async def test_a_source_that_comes_back_in_time_is_asked_again() -> None:
    source = Recovering(says={"*": ["p"]})
    [report] = (await Sources([source], policy=RetryPolicy(pause_seconds=0)).gather(build_direct_query("q"), 3)).reports
    assert (report.outcome, report.retries, report.searches, len(source.asked)) == ("passages", 2, 3, 3)


async def test_what_trying_again_cannot_mend_is_tried_once() -> None:
    source = ToySource(error=Unavailable("the endpoint answered 401", final=True))
    [report] = (await Sources([source]).gather(build_direct_query("q"), 3)).reports
    assert (report.outcome, report.retries, len(source.asked)) == ("failed", 0, 1)


@pytest.mark.parametrize("fault", [{"error": Unavailable("down", final=True)}, {"gate": asyncio.Event()}])
async def test_a_source_that_stays_down_or_silent_is_left_alone(fault: dict[str, Any]) -> None:
    source = ToySource(timeout=0.01, **fault)
    sources = Sources([source], policy=RetryPolicy(failures=2, rest_seconds=1000))
    reports = [(await sources.gather(build_direct_query("q"), 3)).reports[0] for _ in range(3)]
    assert len(source.asked) == 2
    assert "left alone" in reports[2].error
    assert source.live == 0


async def test_sources_are_asked_at_the_same_time() -> None:
    gate = asyncio.Event()
    both = [ToySource("text", gate=gate), ToySource("web", "web", gate=gate)]
    gathering = asyncio.create_task(Sources(both).gather(build_direct_query("q"), 3))
    for source in both:
        await source.asked_times(1)
    gate.set()
    await gathering


async def test_where_the_first_graph_decides_searches_by_words_are_not_waited_for() -> None:
    graph = ToySource("graph", "graph", answers={"UHF directed by": ["Jay Levey"]})
    slow = ToySource("text", gate=asyncio.Event())
    result = await Sources([slow, graph], FIRST).gather(QUERY, 3)
    assert (result.answers, result.by) == (("Jay Levey",), "graph")
    assert [(r.source, r.outcome) for r in result.reports] == [("text", "not needed"), ("graph", "answered")]
    assert slow.live == 0


async def test_which_source_is_faster_does_not_change_the_answer() -> None:
    """The first graph in the configured order answers, even when the second is done long before it."""
    gate = asyncio.Event()
    first = ToySource("graph", "graph", answers={"UHF directed by": ["A"]}, gate=gate)
    second = ToySource("text", "graph", answers={"UHF directed by": ["B"]})
    gathering = asyncio.create_task(Sources([first, second]).gather(QUERY, 3))
    await second.asked_times(1)
    await first.asked_times(1)
    gate.set()
    assert (await gathering).answers == ("A",)


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, "text news web"),
        ({"per_leaf": 2}, "text news"),
    ],
)
async def test_settings_say_who_is_asked(settings: dict[str, Any], asked: str) -> None:
    there = [ToySource("text"), ToySource("news"), ToySource("web", "web")]
    result = await Sources(there, SourceSettings(**settings)).gather(build_direct_query("Who directed UHF?"), 3)
    assert " ".join(report.source for report in result.reports) == asked


@pytest.fixture
async def choosing(endpoint: Endpoint, tmp_path: Path, films: Path, index: Path) -> AsyncIterator[Sources]:
    """Three sources of which a language model behind a real endpoint chooses."""
    (tmp_path / "sources.yaml").write_text(
        f"select: model\nsources:\n- {{kind: graph, name: films, folder: {films}, about: films and who made them}}\n"
        f"- {{kind: text, name: papers, index: {index}}}\n- {{kind: text, name: notes, index: {index}}}\n"
    )
    writer = EndpointGenerator(endpoint.url, "m", retries=0)
    sources = open_sources(tmp_path / "sources.yaml", writer=writer)
    yield sources
    await sources.close()
    await writer.close()


async def test_a_language_model_names_the_sources_to_ask(choosing: Sources, endpoint: Endpoint) -> None:
    """It sees the question of the plan, without the answers of earlier leaves."""
    template = "Where was {director} born?"
    endpoint.knowledge[template] = ["Films and notes"]
    result = await choosing.gather(build_leaf_query(template, "Where was Ada Quill born?"), 3)
    assert [report.source for report in result.reports] == ["films", "notes"]
    assert result.selection.detail == {"by": "model"}
    assert (result.selection.call["task"], result.selection.call["tokens_in"]) == ("write", 11)


@pytest.mark.parametrize(("reply", "says"), [(["nobody"], "names no source"), ("down", "answered 503")])
async def test_where_the_language_model_names_no_source_all_are_asked(
    choosing: Sources, endpoint: Endpoint, reply: Any, says: str
) -> None:
    endpoint.knowledge["Who?"] = reply
    endpoint.down |= {"Who?"} if reply == "down" else set()
    result = await choosing.gather(build_direct_query("Who?"), 3)
    assert len(result.reports) == 3
    assert says in result.selection.detail["error"]


def test_sources_that_a_language_model_selects_need_one(tmp_path: Path, index: Path) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text("select: model\nsources: [{kind: text}]")
    with pytest.raises(ConfigError, match="the embedded reader selects no sources"):
        configure(tmp_path, index=index, sources=path)
    endpoint = {"generator": "http://127.0.0.1:9/v1", "generator_model": "m"}
    assert configure(tmp_path, index=index, sources=path, **endpoint)
    path.write_text("select: model\nsources: [{kind: sparql}]")
    with pytest.raises(ConfigError, match="none is served"):
        open_sources(path)


@dataclass
class Judge:
    """A revelator that says how likely each source is; `prompts` are those that it was asked with."""

    yes: list[float]
    prompts: list[str] = field(default_factory=list)

    async def complete(self, task: str, prompts: list[str], *, temperature: float = 0.0) -> list[Completion]:
        if not self.yes:
            raise Unavailable("the model is gone", final=True)
        self.prompts += prompts
        return [Completion("yes" if p >= 0.5 else "no", {"yes": p, "no": 1 - p}, 20) for p in self.yes]


@pytest.mark.parametrize(
    ("yes", "per_leaf", "asked"),
    [
        ([0.9, 0.2, 0.6], None, "films notes"),
        ([0.6, 0.2, 0.9], 1, "notes"),
        ([0.3, 0.2, 0.1], None, "films papers notes"),
        ([], None, "films papers notes"),
    ],
)
async def test_the_revelator_says_which_sources_hold_the_answer(
    yes: list[float], per_leaf: int | None, asked: str
) -> None:
    """It sees the question of the plan, and what each source holds; where it says yes of none, all are asked."""
    judge, template, names = Judge(yes), "Where was {director} born?", ["films", "papers", "notes"]
    there = [ToySource(name, "graph" if name == "films" else "text") for name in names]
    about = {"films": "films and who made them"}
    settings = SourceSettings(select="revelator", per_leaf=per_leaf)
    sources = Sources(there, settings, revelator=judge, about=about).keep(names)
    result = await sources.gather(build_leaf_query(template, "Where was Ada Quill born?"), 3)
    assert " ".join(report.source for report in result.reports) == asked
    assert result.selection.usage.model_calls == 3
    if yes:
        shown = SelectInput(template, "films", "graph", "films and who made them")
        assert judge.prompts[0] == TASKS["select"].render(shown)
        assert result.selection.detail == {"by": "revelator", "points": dict(zip(names, yes, strict=True))}
    else:
        assert result.selection.detail["error"] == "the model is gone: all were asked"


def test_a_model_that_has_not_learned_to_select_is_refused_before_it_serves(tmp_path: Path, index: Path) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text("select: revelator\nsources: [{kind: text}]")
    with pytest.raises(ArtifactError, match="has not learned the task select"):
        configure(tmp_path, index=index, sources=path)
    planner = PlannerConfig(url="http://127.0.0.1:9/v1", model="m")
    assert configure(tmp_path, index=index, sources=path, planner=planner)
    with pytest.raises(ConfigError, match="the revelator is to select the sources, and none is here"):
        open_sources(path, Toy())


def test_a_text_source_runs_logical_queries_with_operators_and_calibration_of_its_own(
    tmp_path: Path, index: Path
) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(f"sources: [{{kind: text, index: {index}, logical: {{negation: reciprocal, calibration: self}}}}]")
    [source] = open_sources(path).all
    assert isinstance(source, TextSource) and isinstance(source.retriever, LocalRetriever)
    assert source.retriever.how == LogicalSettings(negation="reciprocal", calibration="self")
    path.write_text(f"sources: [{{kind: text, index: {index}, logical: {{calibration: none.json}}}}]")
    with pytest.raises(ArtifactError, match="the calibration cannot be read"):
        open_sources(path)
    path.write_text("sources: [{kind: text, logical: {negation: reciprocal}}]")
    with pytest.raises(ConfigError, match="`logical` without `index`"):
        open_sources(path, Toy())


def test_the_served_index_runs_logical_queries_as_the_deployment_says(tmp_path: Path, index: Path) -> None:
    (tmp_path / "serving.yaml").write_text("logic: {negation: reciprocal, calibration: self}")
    config = configure(tmp_path, **read_settings(tmp_path).chosen | {"index": index})
    how = read_logical_options(["negation=reciprocal", "calibration=self"])
    assert config.logic == how == LogicalSettings(negation="reciprocal", calibration="self")
    with pytest.raises(ConfigError, match="negation"):
        read_logical_options(["negation=never"])
    with pytest.raises(ConfigError, match="not NAME=VALUE"):
        read_logical_options(["negation"])


async def test_every_source_is_asked_however_many_there_are_where_nothing_else_is_said() -> None:
    there = [*(ToySource(f"text{n}") for n in range(3)), ToySource("web", "web")]
    await Sources(there).gather(build_direct_query("Who directed UHF?"), 3)
    assert all(source.asked for source in there)


async def test_so_many_passages_of_each_source_are_taken_as_the_settings_say() -> None:
    text = ToySource(says={"*": ["a", "b", "c"]})
    result = await Sources([text], SourceSettings(passages=2)).gather(build_direct_query("q"), 3)
    assert [p.text for p in result.passages[0]] == ["a", "b"]


async def test_what_had_been_found_by_then_is_no_evidence_where_the_first_graph_decides() -> None:
    """Otherwise it would be chance what is read."""
    graph = ToySource("graph", "graph", answers={"UHF directed by": ["Jay Levey"]}, gate=asyncio.Event())
    fast = ToySource("text", says={"*": ["p"]})
    gathering = asyncio.create_task(Sources([fast, graph], FIRST).gather(QUERY, 3))
    await fast.asked_times(1)
    await graph.asked_times(1)
    graph.gate.set()
    assert (await gathering).passages == ((),)


def test_two_sources_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="name of its own"):
        Sources([ToySource(), ToySource()])


async def test_a_file_names_the_sources(tmp_path: Path, films: Path, index: Path) -> None:
    (tmp_path / "sources.yaml").write_text(
        f"sources:\n- {{kind: graph, name: films, folder: {films}, timeout: 2}}\n- {{kind: text, index: {index}}}\n"
        "- {kind: sparql, name: wikidata}\n- {kind: web, api: searxng, url: 'http://127.0.0.1:9/search'}\n"
    )
    sources = open_sources(tmp_path / "sources.yaml")
    assert [(s.name, s.kind, s.timeout) for s in sources.all] == [
        ("films", "graph", 2.0), ("text", "text", 10.0), ("wikidata", "graph", 10.0), ("web", "web", 5.0),
    ]  # fmt: skip
    result = await sources.gather(build_query(Relate("Tin Comet", "directed by")), 3)
    await sources.close()
    assert result.answers == ("Ada Quill",)


@pytest.mark.parametrize("vocabulary", ["wikidata", "rdfs"])
async def test_the_language_of_a_file_is_that_of_the_labels_asked_for(
    tmp_path: Path, web: Web, vocabulary: str
) -> None:
    (tmp_path / "sources.yaml").write_text(
        f"sources: [{{kind: sparql, url: '{web.url}/sparql', vocabulary: {vocabulary}, language: de}}]"
    )
    web.replies["/sparql"] = 400
    sources = open_sources(tmp_path / "sources.yaml")
    await sources.gather(QUERY, 3)
    await sources.close()
    queries = [sent["query"][0] for _, sent, _ in web.seen]
    assert queries
    assert all("@de" in query and "@en" not in query for query in queries)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sources: []", "sources: "),
        ("", ": file: a mapping is needed$"),
        ("3", ": file: a mapping is needed$"),
        ("sources: [3]", "sources.0: a mapping is needed$"),
        ("sources: []", "sources: .*at least 1 item"),
        ("sources: [{kind: s3cret}]", "sources.0: 'kind' must be one of"),
        ("sources: [{name: s3cret}]", "sources.0: 'kind' must be one of"),
        ("sources: [{kind: text, index: [s3cret]}]", "sources.0.index: a path is needed$"),
        ("sources: [{kind: text, name: *s3cret}]", "not YAML at line 1, column 30$"),
        ("sources: [{kind: text, name: !s3cret x}]", "not YAML at line 1, column 30$"),
        ("sources: [{kind: sparql, language: x s3cret}]", "sources.0.language: .*subtag is invalid"),
        ("sources: [{kind: web, api: brave, key: s3cret}]", "key: there is no such field"),
        ("sources: [{kind: web, api: searxng, url: 'http://u:s3cret@h/'}]", "no user, query or fragment"),
        ("sources: [{kind: graph}]", "folder"),
        ("sources: [{kind: sparql, vocabulary: rdfs, label: 'no iri'}]", "label"),
        ("sources: [{kind: text}]", "no retriever"),
        ("evidence: some\nsources: [{kind: sparql}]", "evidence: .*'all' or 'first'"),
        ("per_leaf: 0\nsources: [{kind: sparql}]", "per_leaf: .*greater than or equal to 1"),
        ("passages: 51\nsources: [{kind: sparql}]", "passages: .*less than or equal to 50"),
        ("about: s3cret\nsources: [{kind: sparql}]", "about: there is no such field"),
        ("select: s3cret\nsources: [{kind: sparql}]", "select: "),
        ("overlap: 2\nsources: [{kind: sparql}]", "overlap: "),
        ("sources: [{kind: sparql}, {kind: sparql}]", "two sources of one name"),
        ("{", "not YAML"),
    ],
)
def test_a_wrong_file_is_one_clear_error_that_shows_no_value(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"(?m){says}") as caught:
        open_sources(path)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sources(tmp_path / "none.yaml")


async def test_within_a_filter_the_sources_without_documents_are_not_asked_and_the_trace_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "films.jsonl").write_text(
        '{"title": "UHF", "text": "Jay Levey directed UHF.", "year": 1989}\n'
        '{"title": "UHF", "text": "Somebody directed UHF.", "year": 2020}\n'
        '{"title": "UHF", "text": "Nobody directed UHF.", "year": 1989, "allowed": ["critics"]}\n'
    )
    build_index([tmp_path / "films.jsonl"], tmp_path / "index")
    retriever = LocalRetriever(Index.open(tmp_path / "index"))
    graph, web = ToySource("graph", "graph", answers={"*": ["X"]}), ToySource("web", "web", says={"*": ["Y"]})
    sources = Sources([TextSource(retriever, "films"), graph, web])
    narrowed = sources.within(Scope("year < 2000"))
    await narrowed.require_fields()
    result = await narrowed.gather(QUERY, 5)
    assert [[passage.text for passage in group] for group in result.passages] == [["Jay Levey directed UHF."]]
    assert [(report.source, report.outcome) for report in result.reports] == [
        ("films", "passages"),
        ("graph", "not needed"),
        ("web", "not needed"),
    ]
    assert "whose fields a filter could compare" in result.reports[1].note and graph.asked == web.asked == []
    with pytest.raises(InvalidRequest, match="there is no field 'genre'"):
        await sources.within(Scope('genre = "comedy"')).require_fields()
    assert len((await sources.gather(QUERY, 5)).passages[0]) == 3 and web.asked
    alone = Sources([TextSource(retriever)])
    scopes = (Scope(), Scope("year < 2000"), Scope(groups=frozenset({"critics"})), Scope(groups=None))
    assert len({alone.within(scope).find_state() for scope in scopes}) == len(scopes), "each has answers of its own"
    retriever.close()
