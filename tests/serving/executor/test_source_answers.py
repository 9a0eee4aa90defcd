"""Every leaf of every plan asks all sources: an index, a graph and the web are read together into one answer."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from revelator.errors import ArtifactError, Unavailable
from revelator.limits import Limits
from revelator.plans.art import Art, render
from revelator.plans.operators import Filter, Relate, Search
from revelator.trace import Node, Trace
from serving.executor.executor import Executor
from serving.knowledge.config import open_sources
from serving.knowledge.operators import build_leaf_query
from serving.knowledge.selection import SourceSettings
from serving.knowledge.sources import Sources
from serving.models.generators import EndpointGenerator
from serving.protocols import Scope, Writing
from serving.retrieval import build_index
from tests.conftest import Endpoint
from tests.serving.executor.world import Toy
from tests.serving.knowledge.toy_sources import ToySource
from tests.serving.knowledge.toy_web import Web

WHO = "Who directed Tin Comet?"
BORN = "Where was {director} born?"
CHAIN = f"{WHO} * {BORN}"
PASSAGES = [
    {"id": "1", "title": "Ada Quill", "text": "Ada Quill was born in Port Velm."},
    {"id": "2", "title": "Tin Comet", "text": "Tin Comet is a film of 1987 with Bo Marsh."},
]
HITS = {"results": [{"url": "http://x.example/quill", "title": "Quill", "content": "Ada Quill was born in Orland."}]}

Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path, films: Path, web: Web) -> Ask:
    """Asks over an index, a graph and the web, as a sources file names them; `settings` are added to the file."""
    (tmp_path / "passages.jsonl").write_text("\n".join(map(json.dumps, PASSAGES)))
    build_index([tmp_path / "passages.jsonl"], tmp_path / "papers")
    web.replies["/search"] = HITS

    async def ask(world: Toy, question: str, settings: str = "", web_timeout: float = 20, **options: Any) -> Trace:
        writing = options.pop("writing", Writing())
        (tmp_path / "sources.yaml").write_text(
            f"{settings}\nsources:\n- {{kind: text, name: papers, index: papers}}\n"
            f"- {{kind: graph, name: films, folder: {films}}}\n"
            f"- {{kind: web, api: searxng, url: '{web.url}/search', timeout: {web_timeout}}}\n"
        )
        sources = open_sources(tmp_path / "sources.yaml")
        world.outputs = {"translate_art": "{"} | dict(world.outputs)
        executor = Executor(world, sources, world, writing=writing)
        trace = await executor.run(question, **options)
        await sources.close()
        return Trace.from_json(json.loads(trace.dump_json()))

    return ask


def find_leaf(trace: Trace, asked: str) -> Node:
    return next(node for node in trace.nodes if node.asked == asked)


def list_outcomes(node: Node) -> dict[str, str]:
    return {report["source"]: report["outcome"] for report in node.detail["sources"]}


async def test_a_plan_draws_one_step_from_a_graph_and_the_next_from_passages(ask: Ask) -> None:
    """No passage says who directed the film, and the graph does not say where she was born."""
    world = Toy({"Where was Ada Quill born?": ["Port Velm"]}, {"route": "complex", "translate_bnf": CHAIN})
    trace = await ask(world, "Where was the director of Tin Comet born?")
    assert (trace.strategy, trace.outcome, trace.answers) == ("auto", "answered", ["Port Velm"])
    first, second = find_leaf(trace, WHO), find_leaf(trace, "Where was Ada Quill born?")
    assert (first.answers, first.detail["method"]) == (["Ada Quill"], "films")
    assert first.detail["document"] == "films:Tin Comet#directed by"
    assert first.find_evidence().text == "Tin Comet: directed by Ada Quill."  # type: ignore[union-attr]
    assert list_outcomes(first) == {"papers": "passages", "films": "answered", "web": "passages"}
    assert [p.id for p in second.documents][:2] == ["papers:1", "web:http://x.example/quill"]
    assert second.find_evidence().text == "Ada Quill was born in Port Velm."  # type: ignore[union-attr]
    assert {evidence.passage.id for evidence in trace.list_evidence()} >= {"films:Tin Comet#directed by", "papers:1"}


async def test_a_graph_is_asked_by_the_operator_that_the_model_writes_for_a_leaf(ask: Ask) -> None:
    """The question's own words name no relation of the graph."""
    asked = "Who made Tin Comet?"
    operator = render(Art(asked, Relate("Tin Comet", "director")))
    [node] = (await ask(Toy(outputs={"translate_art": operator}), asked, strategy="single")).nodes
    assert (node.answers, node.detail["call"]) == (["Ada Quill"], 'Relate("Tin Comet", "director")')
    assert (await ask(Toy(), asked, strategy="single")).answers == []


@pytest.mark.parametrize(
    "written",
    [
        Art("q", Relate("Tin Comet", "maker")),  # no relation of the graph
        Art("q", Relate("Paper Moons", "directed by")),  # not what was asked about
        Art("q", Search("Tin Comet")),
        Art("q", children=(Art("a", Search("a")), Art("b", Search("b")))),
    ],
)
async def test_an_operator_that_does_not_fit_leaves_the_words_of_the_question(ask: Ask, written: Art) -> None:
    trace = await ask(Toy(outputs={"translate_art": render(written)}), WHO, strategy="single")
    assert trace.answers == ["Ada Quill"]


async def test_a_leaf_without_an_answer_is_put_to_the_sources_that_were_not_asked(ask: Ask) -> None:
    """As a node below, which `retries` bounds; the answer is that of the leaf, and each source is asked once."""
    trace = await ask(Toy(), WHO, "per_leaf: 1", strategy="single")
    leaf, below = trace.nodes
    assert (trace.outcome, leaf.answers, leaf.detail["method"]) == ("answered", ["Ada Quill"], "films")
    assert leaf.find_evidence() == below.find_evidence() is not None
    assert (below.parent, leaf.detail["fallback"]["node"]) == (leaf.id, below.id)
    assert [list_outcomes(node) for node in trace.nodes] == [{"papers": "passages"}, {"films": "answered"}]
    for asked, retries, tries in [(WHO, 0, 1), ("Who?", 1, 2), ("Who?", 2, 3), ("Who?", 9, 3)]:
        trace = await ask(Toy(), asked, "per_leaf: 1", strategy="single", limits=Limits(retries=retries))
        assert (trace.outcome, len(trace.nodes)) == ("unanswered", tries)
    assert len((await ask(Toy(), "Who?", strategy="single")).nodes) == 1
    filtered = await ask(Toy(), "Who?", "per_leaf: 1", strategy="single", scope=Scope(where='type = "jsonl"'))
    assert len(filtered.nodes) == 1  # graph and web hold no documents


async def test_a_source_that_fails_the_second_time_is_named(ask: Ask, web: Web) -> None:
    web.replies["/search"] = 404
    trace = await ask(Toy(), "Who?", "per_leaf: 2", strategy="single")
    leaf, below = trace.nodes
    assert (trace.outcome, leaf.status, below.status) == ("failed", "unanswered", "failed")
    assert "web: " in str(below.error)


async def test_what_a_language_model_knows_comes_after_all_sources(ask: Ask) -> None:
    world, writing = Toy({f"direct: {WHO}": ["Bo Marsh"]}), Writing(own_knowledge=True)
    assert (await ask(world, WHO, "per_leaf: 1", writing=writing, strategy="single")).answers == ["Ada Quill"]
    trace = await ask(world, WHO, "per_leaf: 1", writing=writing, strategy="single", limits=Limits(retries=0))
    assert trace.answers == ["Bo Marsh"]


@pytest.mark.parametrize("is_on", [True, False])
async def test_rules_over_words_have_a_switch_each(ask: Ask, is_on: bool) -> None:
    settings = f"own_words: {is_on}\nconditions: {is_on}"
    assert bool((await ask(Toy(), WHO, settings, strategy="single")).answers) == is_on
    for condition in ("before 1990", "other than Glass Harbour"):
        tree = render(Art("Which of them?", Filter(("Tin Comet", "Glass Harbour"), condition)))
        trace = await ask(Toy(), "Which of them?", settings, plan=tree, strategy="atomic")
        assert trace.answers == ["Tin Comet"] * is_on


@pytest.mark.parametrize("strategy", ["single", "compound", "compile", "iterate", "auto"])
async def test_every_strategy_that_reads_asks_every_source(ask: Ask, strategy: str) -> None:
    outputs = {"route": "single", "decompose": f'["{WHO}"]', "translate_bnf": WHO, "refine": WHO, "end": "yes"}
    trace = await ask(Toy(outputs=outputs), WHO, strategy=strategy)
    assert trace.answers == ["Ada Quill"]
    assert set(list_outcomes(find_leaf(trace, WHO))) == {"papers", "films", "web"}
    assert trace.usage.retrievals == 3


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (503, "answered 503"),
        (b"<!doctype html><title>Sign in</title>", "not the JSON that the API promises"),
        (threading.Event(), "left out after 0.05 s"),
    ],
)
async def test_a_web_that_is_down_silent_or_a_page_costs_no_leaf_its_answer(
    ask: Ask, web: Web, fault: Any, says: str
) -> None:
    web.replies["/search"] = fault
    trace = await ask(Toy(), WHO, web_timeout=0.05 if isinstance(fault, threading.Event) else 20, strategy="single")
    assert (trace.outcome, trace.answers) == ("answered", ["Ada Quill"])
    [told] = [report for report in trace.nodes[0].detail["sources"] if report["source"] == "web"]
    assert told["outcome"] in ("failed", "late")
    assert says in told["error"] and "\n" not in told["error"].partition("\n  hint")[0]


async def test_where_the_first_evidence_counts_a_graph_that_has_the_answer_ends_the_wait(ask: Ask, web: Web) -> None:
    web.replies["/search"] = threading.Event()
    world = Toy({WHO: ["Orland"]})
    trace = await ask(world, WHO, "evidence: first", strategy="single")
    assert (trace.answers, world.requests) == (["Ada Quill"], [])
    assert list_outcomes(trace.nodes[0])["web"] == "not needed"


async def test_an_unanswered_leaf_says_which_source_it_had_to_do_without(ask: Ask, web: Web) -> None:
    web.replies["/search"] = 503
    trace = await ask(Toy(relevance={"": 0.001}), "Where was Cy Vane born?", strategy="single")
    assert trace.outcome == "unanswered"
    assert trace.reason.endswith("without web, which failed or came too late")


async def test_the_whole_list_of_a_graph_is_the_answer_where_the_reader_found_a_part_of_it(ask: Ask) -> None:
    trace = await ask(Toy({"Who starred in Tin Comet?": ["Marsh"]}), "Who starred in Tin Comet?", strategy="single")
    [node] = trace.nodes
    assert (node.answers, node.status) == (["Bo Marsh", "Cy Vane"], "ok")
    assert "contradicts" not in node.detail


async def test_what_the_passages_say_stands_against_the_list_of_a_graph_and_the_trace_names_it(ask: Ask) -> None:
    trace = await ask(Toy({WHO: ["Orland"]}), WHO, strategy="single")
    [node] = trace.nodes
    assert (node.answers, node.detail["contradicts"]) == (["Orland"], {"films": ["Ada Quill"]})


async def test_what_is_misread_in_the_triples_themselves_contradicts_nothing(ask: Ask) -> None:
    trace = await ask(Toy({WHO: ["directed by"]}), WHO, strategy="single")
    assert (trace.answers, trace.outcome) == (["Ada Quill"], "answered")


async def test_triples_that_are_judged_irrelevant_are_no_answer(ask: Ask) -> None:
    trace = await ask(Toy(relevance={"directed by": 0.001}), WHO, strategy="single")
    assert (trace.outcome, trace.answers) == ("unanswered", [])


async def test_where_only_the_graph_knows_nothing_is_read(ask: Ask) -> None:
    world = Toy(relevance={"directed by": 0.9, "": 0.001})
    trace = await ask(world, WHO, strategy="single")
    assert (trace.answers, world.requests) == (["Ada Quill"], [])


async def test_a_reader_that_is_down_leaves_the_list_of_a_graph(ask: Ask) -> None:
    trace = await ask(Toy({WHO: Unavailable("reader restarting", final=True)}), WHO, strategy="single")
    assert (trace.answers, trace.nodes[0].detail["unread"]) == (["Ada Quill"], "reader restarting")


async def test_what_is_on_the_list_of_a_graph_is_counted_by_the_plan(ask: Ask) -> None:
    plan = f"{WHO} * Which films did {{1}} direct? => count"
    assert (await ask(Toy(), "How many films are there?", plan=plan)).answers == ["2"]


async def test_an_earlier_answer_of_a_graph_is_reused(ask: Ask) -> None:
    first = await ask(Toy(), WHO, strategy="single")
    again = await ask(Toy(), WHO, strategy="single", reuse=first)
    assert (again.answers, again.usage.retrievals) == (["Ada Quill"], 0)


async def test_a_question_for_which_every_source_failed_is_a_fault() -> None:
    sources = Sources([ToySource(name, error=Unavailable("gone", final=True)) for name in ("papers", "notes")])
    with pytest.raises(Unavailable, match="papers: gone; notes: gone"):
        await Executor(Toy(), sources, Toy()).run(WHO, strategy="single")


@pytest.mark.parametrize("there", [["Tin Comet is by Ada."], []])
@pytest.mark.parametrize("retries", [0, 1])
async def test_where_the_chosen_source_fails_the_others_are_asked(there: list[str], retries: int) -> None:
    """The question fails by that failure alone where they may not be asked, or have no answer."""
    gone = ToySource("papers", error=Unavailable("gone", final=True))
    sources = Sources([gone, ToySource("notes", says={WHO: there})], SourceSettings(per_leaf=1))
    executor = Executor(world := Toy({WHO: ["Ada"]}), sources, world)
    asked = executor.run(WHO, strategy="single", limits=Limits(retries=retries))
    if retries and there:
        leaf, below = (trace := await asked).nodes
        assert (trace.outcome, trace.answers) == ("answered", ["Ada"])
        assert [list_outcomes(node) for node in (leaf, below)] == [{"papers": "failed"}, {"notes": "passages"}]
        assert "papers: gone" in leaf.detail["fallback"]["because"]
    else:
        with pytest.raises(Unavailable, match="papers: gone"):
            await asked


async def test_what_choosing_the_sources_took_is_counted(endpoint: Endpoint) -> None:
    endpoint.knowledge[WHO] = ["notes"]
    writer = EndpointGenerator(endpoint.url, "m", retries=0)
    there = [ToySource("papers"), ToySource("notes", says={"*": ["Tin Comet is by Ada."]})]
    sources = Sources(there, SourceSettings(select="model"), writer=writer)
    world = Toy({WHO: ["Ada"]})
    trace = await Executor(world, sources, world).run(WHO, strategy="single")
    await writer.close()
    assert (trace.answers, there[0].asked) == (["Ada"], [])
    assert trace.usage.generator_calls == 2
    assert [call["task"] for call in trace.nodes[0].list_calls()] == ["write", "relevance", "read", "search:notes"]


@pytest.mark.parametrize(
    ("output", "found_by"),
    [
        ('"film" AND NOT "Velm"', '"film" AND NOT "Velm"'),
        ('"film"', None),
        ('"film" AND "film"', None),
        ('NOT "Velm"', None),
        ('"film" AND', None),
    ],
)
async def test_a_leaf_with_conditions_finds_its_texts_by_a_logical_query(
    ask: Ask, output: str, found_by: str | None
) -> None:
    """Where the file says so and the model's query joins several terms and can be run; else by the question's words."""
    asked = "Which film is not of Port Velm?"
    trace = await ask(Toy(outputs={"translate_logic": output}), asked, "logic: true", strategy="single")
    node = find_leaf(trace, asked)
    found = {passage.title for passage in node.documents if passage.id.startswith("papers:")}
    assert node.detail.get("logic") == found_by
    assert found == ({"Tin Comet"} if found_by else {"Tin Comet", "Ada Quill"})
    assert "translate_logic" in [call["task"] for call in node.list_calls()]


async def test_without_the_setting_no_logical_query_is_written(ask: Ask) -> None:
    assert "logic" not in (await ask(Toy(), WHO, strategy="single")).nodes[0].detail


async def test_passages_of_the_sources_take_turns_and_copies_are_dropped() -> None:
    said = {"papers": ["a", "b", "c"], "notes": ["x", "a", "y"]}
    sources = Sources([ToySource(name, says={"*": texts}) for name, texts in said.items()])
    world = Toy({"who?": ["a"]})
    trace = await Executor(world, sources, world).run("who?", strategy="single")
    assert [p.text for p in trace.nodes[0].documents] == ["a", "x", "b", "c", "y"]
    assert trace.nodes[0].documents[0].id == "papers:papers:1"


def test_a_graph_that_another_program_writes_to_is_refused_in_one_line(tmp_path: Path, films: Path) -> None:
    shutil.copytree(films, tmp_path / "graph")
    writer = ox.Store(str(tmp_path / "graph" / "store"))
    (tmp_path / "sources.yaml").write_text("sources: [{kind: graph, folder: graph}]")
    with pytest.raises(ArtifactError, match=r"is missing|has changed") as refused:
        open_sources(tmp_path / "sources.yaml")
    assert "\n" not in str(refused.value).partition("\n  hint")[0]
    del writer


@pytest.mark.parametrize(
    ("template", "asked", "call", "heads"),
    [
        (WHO, WHO, Relate("Tin Comet", "directed"), ("Tin Comet",)),
        (BORN, "Where was ada born?", Relate("ada", "born"), ("ada",)),
        ("How many films did {x} direct?", "How many films did Bo direct?", Relate("Bo", "many films direct"), ("Bo",)),
        ("Who sang Up the Long Hill?",) * 2 + (Relate("Up the Long Hill", "sang"), ("Up the Long Hill",)),
        ("Who is {x}?", "Who is Ada Quill?", None, ()),
        ("Is {x} a comedy?", "Is Tin Comet a comedy?", Relate("Tin Comet", "comedy"), ("Tin Comet",)),
        ("Who rules?", "Who rules?", None, ()),
    ],
)
def test_a_graph_is_asked_for_the_one_entity_that_a_leaf_names(
    template: str, asked: str, call: Relate | None, heads: tuple[str, ...]
) -> None:
    query = build_leaf_query(template, asked)
    assert (query.texts, query.call, query.heads) == ((asked,), call, heads)


async def test_a_leaf_is_a_search_a_logical_query_or_an_operator_as_the_plan_says(ask: Ask) -> None:
    """The operators run as in a tree: `Relate` for each value, `Filter` for the whole list."""
    plan = 'Relate("Ada Quill", ^"directed by") * Filter(["{films}"], "release year after 1988")'
    trace = await ask(Toy(), "Which early films did Ada Quill direct?", plan=plan)
    relate, kept = (node for node in trace.nodes if node.kind == "atomic")
    assert relate.detail["call"] == 'Relate("Ada Quill", ^"directed by")'
    assert kept.detail["call"] == kept.asked and kept.detail["call"].startswith('Filter(["')
    assert set(kept.answers) < set(relate.answers) and trace.answers == kept.answers != []
    conditions = '"film" AND NOT "Velm"'
    node = find_leaf(await ask(Toy(), "Which film?", plan=conditions), conditions)
    assert node.detail["logic"] == conditions
    assert {passage.title for passage in node.documents if passage.id.startswith("papers:")} == {"Tin Comet"}


async def test_an_operator_in_a_plan_is_read_by_its_prompt_and_takes_values_that_hold_quotes() -> None:
    text = ToySource("text", says={"*": ['The "Tin" Comet and Lantern Row; one of them was directed by Ada Quill.']})
    world = Toy({"Which film?": ['The "Tin" Comet', "Lantern Row"], 'The "Tin" Comet director': ["Ada Quill"]})
    plan = 'Which film? * Relate("{film}", "director")'
    trace = await Executor(world, Sources([text]), world).run("Who?", plan=plan)
    operators = [request.operator for request in world.requests if request.operator]
    assert sorted(operators) == ['Relate("Lantern Row", "director")', 'Relate("The \\"Tin\\" Comet", "director")']
    assert (trace.answers, trace.outcome) == (["Ada Quill"], "partial")


async def test_a_forced_logical_query_asks_every_source(ask: Ask) -> None:
    """The texts by the query, the graph and the web by the question."""
    trace = await ask(Toy(), WHO, strategy="logic", plan='"film" AND NOT "Velm"')
    [node] = [node for node in trace.nodes if node.kind == "atomic"]
    assert trace.answers == ["Ada Quill"]
    assert list_outcomes(node) == {"papers": "passages", "films": "answered", "web": "passages"}
    assert [passage.title for passage in node.documents if passage.id.startswith("papers:")] == ["Tin Comet"]
