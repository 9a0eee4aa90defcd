"""Trees run: order, references, typed answers, reasoning over children and siblings, direct RAG, cost, the trace."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from revelator.errors import PlanError, Unavailable
from revelator.limits import Limits
from revelator.plans.art import Art, parse
from revelator.plans.operators import Filter, Relate, Search
from revelator.trace import Passage, Trace
from serving.executor.executor import Executor
from serving.executor.judges import Unjudged
from serving.knowledge.attempts import AT_ONCE
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore, build_graph
from serving.knowledge.operators import FAN_OUT, build_query, compute_overlap
from serving.knowledge.selection import SourceSettings
from serving.knowledge.sources import Sources
from serving.protocols import GenerateRequest, NoModel, Reading
from tests.serving.knowledge.toy_sources import ToyGenerator, ToySource, new_run, run_tree, run_tree_alone

CHAIN = Art(
    "Which films did the director of Tin Comet also direct?",
    children=(
        Art("Who directed Tin Comet?", Relate("Tin Comet", "directed by")),
        Art("Which films did [1] direct?", Relate("[1]", "directed by", True)),
        Art("Which of [2] are others than Tin Comet?", Filter(("[2]",), "other than Tin Comet")),
    ),
)


async def test_a_chain_over_a_graph_needs_no_generator(films: Path) -> None:
    sources = Sources([GraphSource(GraphStore(films))])
    generator = ToyGenerator()
    trace = await run_tree_alone(CHAIN, sources, generator)
    await sources.close()
    assert trace.answers == ["Glass Harbour"]
    assert [node.answers for node in trace.nodes] == [
        ["Glass Harbour"], ["Ada Quill"], ["Tin Comet", "Glass Harbour"], ["Glass Harbour"],
    ]  # fmt: skip
    assert [node.status for node in trace.nodes] == ["ok"] * 4
    assert generator.requests == [] and trace.usage.generator_calls == 0
    assert trace.usage.retrievals == 2  # "other than" is decided by code
    assert parse(trace.plan or "") == CHAIN
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace
    assert trace.nodes[2].detail["call"] == 'Relate("Ada Quill", ^"directed by")'
    assert trace.nodes[2].inputs == {"1*": trace.nodes[1].id}


async def test_retrieval_queries_are_the_papers() -> None:
    answers = {"1*": ("Ada", "Bo")}
    cases = [
        (Search("Michael Jordan", "scientist"), ("Michael Jordan scientist",)),
        (Relate("Barack Obama", "child"), ("Barack Obama child",)),
        (Relate("{1*}", "child"), ("Ada child", "Bo child")),
        (Filter(("{1*}", "Cy"), "born in 1955"), ("Ada born in 1955", "Bo born in 1955", "Cy born in 1955")),
    ]
    for call, texts in cases:
        assert build_query(call, values=answers).texts == texts


async def test_text_sources_give_three_passages_a_query_and_one_generator_call() -> None:
    text = ToySource(says={"UHF directed by": ["one", "two", "three", "four"]})
    generator = ToyGenerator({"Who directed UHF?": ["Jay Levey"]})
    trace = await run_tree_alone(Art("Who directed UHF?", Relate("UHF", "directed by")), Sources([text]), generator)
    assert trace.answers == ["Jay Levey"]
    assert [p.text for p in generator.requests[0].passages] == ["one", "two", "three"]
    [node] = trace.nodes
    assert (node.sentence, node.usage.generator_calls, node.usage.retrievals) == ("It is Jay Levey.", 1, 1)
    assert (node.usage.tokens_in, node.usage.tokens_out) == (7, 3)


async def test_a_filter_drops_entities_whose_passages_share_too_little() -> None:
    text = ToySource(
        says={
            "Damn won the Pulitzer Prize": ["In 2018 Damn won the Pulitzer Prize for Music."],
            "Mojo won the Pulitzer Prize": ["A band from Leeds."],
        }
    )
    question = "Which of Damn, Mojo won the Pulitzer Prize?"
    generator = ToyGenerator({question: ["damn", "Something else"]})
    tree = Art(question, Filter(("Damn", "Mojo"), "won the Pulitzer Prize"))
    trace = await run_tree_alone(tree, Sources([text]), generator)
    assert [p.text for p in generator.requests[0].passages] == ["In 2018 Damn won the Pulitzer Prize for Music."]
    assert trace.nodes[0].detail["overlap"] == {"Damn": 1.0, "Mojo": 0.0}
    assert trace.answers == ["Damn"]  # a clean list: a part of the entities


async def test_a_filter_looks_at_every_entity_and_says_where_it_stops() -> None:
    for count, looked_at in ((12, 12), (FAN_OUT + 1, FAN_OUT)):
        cities = tuple(f"City{i}" for i in range(count))
        text = ToySource(says={f"{city} on the coast": [f"{city} lies on the coast."] for city in cities})
        generator = ToyGenerator({"Which lie on the coast?": cities})
        trace = await run_tree_alone(
            Art("Which lie on the coast?", Filter(cities, "on the coast")), Sources([text]), generator
        )
        assert len(text.asked) == looked_at
        assert max(text.at_once) <= AT_ONCE
        assert len(generator.requests[0].passages) == looked_at
        assert trace.outcome == ("answered" if looked_at == count else "partial")
        assert trace.nodes[0].detail.get("truncated", "64 of 65 entities were searched for") == (
            "64 of 65 entities were searched for"
        )


async def test_a_filter_whose_passages_say_too_little_of_every_entity_says_so() -> None:
    text = ToySource(says={"Mojo won the Pulitzer Prize": ["A band from Leeds."]})
    tree = Art("Did Mojo?", Filter(("Mojo",), "won the Pulitzer Prize"))
    trace = await run_tree_alone(tree, Sources([text]), ToyGenerator())
    assert "overlap below 0.5" in trace.nodes[0].detail["fallback"]["because"]


async def test_that_the_first_graph_knows_of_none_is_not_overruled_by_words(films: Path) -> None:
    """Nor by direct RAG; and what is drawn from nothing is nothing, or 0."""
    text = ToySource("papers", says={"*": ["Tin Comet came out before 1950."]})
    sources = Sources([GraphSource(GraphStore(films)), text], SourceSettings(evidence="first"))
    which = Filter(("Tin Comet", "Paper Moons"), "before 1950")
    trace = await run_tree_alone(
        Art("Which is old?", which), sources, generator := ToyGenerator({"Which is old?": ["Tin Comet"]})
    )
    assert (trace.answers, trace.outcome, generator.requests) == ([], "answered", [])
    tree = Art(
        "How many directors have old ones?",
        children=(
            Art("Which is old?", which),
            Art("Who directed [1]?", Relate("[1]", "directed by")),
            Art("How many are [2]?", operation="count"),
        ),
    )
    trace = await run_tree_alone(tree, sources, generator)
    await sources.close()
    assert [node.answers for node in trace.nodes] == [["0"], [], [], ["0"]]
    assert (trace.outcome, generator.requests) == ("answered", [])


@pytest.mark.parametrize(
    ("read", "answers"),
    [([], ["Bo Marsh", "Cy Vane"]), (["Bo Marsh"], ["Bo Marsh", "Cy Vane"]), (["Ada Quill"], ["Ada Quill"])],
)
async def test_the_list_of_a_graph_is_evidence_beside_passages(
    films: Path, read: list[str], answers: list[str]
) -> None:
    text = ToySource("papers", says={"*": ["Ada Quill starred in Tin Comet."]})
    sources = Sources([GraphSource(GraphStore(films), "films"), text])
    tree = Art("Who starred in Tin Comet?", Relate("Tin Comet", "starred actors"))
    trace = await run_tree_alone(tree, sources, generator := ToyGenerator({"Who starred in Tin Comet?": read}))
    await sources.close()
    [node] = trace.nodes
    assert [p.id for p in generator.requests[0].passages] == ["films:Tin Comet#starred actors", "papers:papers:1"]
    assert (trace.answers, trace.outcome) == (answers, "answered")
    contradicted = read == ["Ada Quill"]
    assert node.detail.get("contradicts") == ({"films": ["Bo Marsh", "Cy Vane"]} if contradicted else None)
    assert ("ids" in node.detail) is not contradicted, "the identifiers are those of the answers"


async def test_of_what_the_reader_is_unsure_is_no_contradiction(films: Path) -> None:
    class Unsure(ToyGenerator):
        async def answer(self, request: GenerateRequest) -> Reading:
            return replace(await super().answer(request), probability=0.4)

    sources = Sources([GraphSource(GraphStore(films)), ToySource("papers", says={"*": ["Tin Comet is by Bo."]})])
    tree = Art("Who directed Tin Comet?", Relate("Tin Comet", "directed by"))
    trace = await run_tree_alone(tree, sources, Unsure({"Who directed Tin Comet?": ["Bo"]}))
    await sources.close()
    assert (trace.answers, "probability" in trace.nodes[0].detail) == (["Ada Quill"], False)


async def test_nothing_is_left_of_one_without_itself() -> None:
    text = ToySource(says={"*": ["p"]})
    trace = await run_tree_alone(
        Art("Others?", Filter(("Tin Comet",), "other than Tin Comet")), Sources([text]), ToyGenerator()
    )
    assert (trace.answers, trace.outcome, text.asked) == ([], "answered", [])


async def test_films_of_one_name_are_counted_apart_and_a_cut_list_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    films = [
        f'<urn:{i}> {label} "{"The Fly" if i < 2 else f"Film {i}"}" . <urn:{i}> <urn:kind> <urn:k> .' for i in range(5)
    ]
    (tmp_path / "g.nt").write_text("\n".join([f'<urn:k> {label} "Drama" .', *films]).replace(" . <", " .\n<"))
    build_graph([tmp_path / "g.nt"], tmp_path / "graph")
    sources = Sources([GraphSource(GraphStore(tmp_path / "graph"))])
    listed, counted = (
        Art("Which are dramas?", Relate("Drama", "kind", True)),
        Art("How many are [1]?", operation="count"),
    )
    tree = Art("How many dramas?", children=(listed, counted))
    for rows, outcome in ((10, "answered"), (3, "partial")):
        monkeypatch.setattr("serving.knowledge.graph.ROWS", rows)
        trace = await run_tree_alone(tree, sources, ToyGenerator())
        assert (trace.answers, trace.outcome) == (["5"], outcome)
    assert trace.nodes[1].detail["truncated"] == "inverse of kind, 3 of 5"
    await sources.close()


def test_the_overlap_coefficient_is_of_the_smaller_set() -> None:
    assert compute_overlap("red green blue", [Passage("", "", "green and red")]) == 1.0
    assert compute_overlap("red green", [Passage("", "red", "one two three")]) == 0.5
    assert compute_overlap("the of", [Passage("", "", "the of")]) == 0.0
    assert compute_overlap("red", []) == 0.0


async def test_siblings_that_need_nothing_of_one_another_run_side_by_side() -> None:
    gate = asyncio.Event()
    text = ToySource(says={"*": ["What?"]}, gate=gate)
    tree = Art("What then?", children=(Art("a?", Search("a")), Art("b?", Search("b")), Art("c [1]?", Search("[1]"))))
    running = asyncio.create_task(
        run_tree_alone(tree, Sources([text]), ToyGenerator({"a?": ["Ann"], "b?": ["Bo"], "c Ann?": ["C"]}))
    )
    await text.asked_times(2)
    assert text.asked == ["a", "b"]
    gate.set()
    await running
    assert text.asked == ["a", "b", "Ann"]


async def test_an_operation_is_done_with_the_siblings_that_its_node_names() -> None:
    text = ToySource(says={"*": ["p"]})
    generator = ToyGenerator({"Which albums?": ["Pies", "Magia", "Peligro"]})
    counted = Art("How many are in [1]?", operation="count")
    tree = Art("How many albums?", children=(Art("Which albums?", Search("albums")), counted))
    trace = await run_tree_alone(tree, Sources([text]), generator)
    assert trace.answers == ["3"]
    assert trace.nodes[2].detail["method"] == "count"
    assert len(generator.requests) == 1  # counting is code


async def test_what_is_used_below_a_child_is_no_answer_of_the_whole(films: Path) -> None:
    """Who "she" is was found for the lists; the question asks for what is left of them."""
    she = Art("Who is she?", Search("Ada Quill"))
    both = Art("What is hers?", children=(Art("What did [1] direct?", Relate("[1]", "directed by", True)),))
    tree = Art("Which or what is left?", children=(she, both, Art("Others?", Filter(("[2]",), "other than Tin Comet"))))
    sources, generator = Sources([GraphSource(GraphStore(films))]), ToyGenerator()
    trace = await run_tree_alone(tree, sources, generator)
    await sources.close()
    assert (trace.answers, generator.requests) == (["Glass Harbour"], [])


async def test_what_code_cannot_judge_is_merged_by_one_generator_call() -> None:
    text = ToySource(says={"*": ["p"]})
    generator = ToyGenerator({"a?": ["x"], "b?": ["y"], "merge: Why are x and y alike?": ["both red"]})
    tree = Art("?", children=(Art("a?", Search("a")), Art("b?", Search("b")), Art("Why are [1] and [2] alike?")))
    trace = await run_tree_alone(tree, Sources([text]), generator)
    assert trace.answers == ["both red"]
    assert [request.mode for request in generator.requests] == ["read", "read", "merge"]
    assert generator.requests[2].steps[0].answer == "x"


async def test_an_operator_that_fails_goes_through_direct_rag_as_a_node_of_its_own() -> None:
    text = ToySource(says={"Who directed UHF?": ["Jay Levey directed it."]})
    generator = ToyGenerator({"Who directed UHF?": ["Jay Levey"]})
    trace = await run_tree_alone(Art("Who directed UHF?", Relate("UHF", "directed by")), Sources([text]), generator)
    leaf, fallback = trace.nodes
    assert text.asked == ["UHF directed by", "Who directed UHF?"]
    assert (leaf.status, leaf.answers, fallback.parent) == ("ok", ["Jay Levey"], leaf.id)
    assert leaf.detail["fallback"]["node"] == fallback.id
    assert "nothing was found (text: toy)" in leaf.detail["fallback"]["because"]
    assert trace.outcome == "answered"


async def test_a_parent_whose_children_failed_goes_through_direct_rag_and_what_needs_them_is_skipped() -> None:
    text = ToySource(says={"root?": ["p"]})
    tree = Art("root?", children=(Art("a?", Search("a")), Art("b of [1]?", Relate("[1]", "b"))))
    trace = await run_tree_alone(tree, Sources([text]), ToyGenerator({"root?": ["found"]}))
    [skipped] = [node for node in trace.nodes if node.status == "skipped"]
    assert trace.answers == ["found"]
    assert skipped.question == "b of {1*}?" and "a question before it gave no answer" in (skipped.error or "")


async def test_no_trace_node_makes_more_than_one_generator_call() -> None:
    text = ToySource(says={"*": ["p"]})
    for known in ({}, {"a?": ["x"]}, {"a?": ["x"], "b x?": ["y"]}):
        generator = ToyGenerator(known)
        tree = Art(
            "Is it so or not?", children=(Art("a?", Search("a")), Art("b [1]?", Relate("[1]", "b")), Art("Is [2] so?"))
        )
        trace = await run_tree_alone(tree, Sources([text]), generator)
        assert max(node.usage.generator_calls for node in trace.nodes) <= 1
        assert trace.usage.generator_calls == len(generator.requests)


async def test_an_answer_with_semicolons_stays_one_answer() -> None:
    text = ToySource(says={"*": ["p"]})
    trace = await run_tree_alone(
        Art("root?", children=(Art("a?", Search("a")),)), Sources([text]), ToyGenerator({"a?": ["x; y"]})
    )
    assert trace.answers == ["x; y"]


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        (Art("q", children=(Art("[2]", Search("x")), Art("b", Search("y")))), "answered later"),
        (Art("q", children=tuple(Art(f"{i}?", Search("x")) for i in range(40))), "limit leaves is 32"),
    ],
)
async def test_a_tree_that_cannot_run_is_refused_before_anything_is_asked(tree: Art, says: str) -> None:
    text = ToySource()
    with pytest.raises(PlanError, match=says):
        await run_tree_alone(tree, Sources([text]), ToyGenerator())
    assert text.asked == []


async def test_a_generator_that_is_down_is_said_when_nothing_was_answered() -> None:
    text = ToySource(says={"*": ["p"]})
    with pytest.raises(Unavailable, match="down"):
        await run_tree_alone(Art("a?", Search("a")), Sources([text]), ToyGenerator(error=Unavailable("down")))


async def test_nothing_runs_on_after_cancellation() -> None:
    text = ToySource(gate=asyncio.Event())
    tree = Art("q", children=(Art("a", Search("a")), Art("b", Search("b"))))
    running = asyncio.create_task(run_tree_alone(tree, Sources([text]), ToyGenerator()))
    await text.asked_times(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert text.live == 0


async def test_what_a_search_told_apart_stays_apart_in_the_next_node(tmp_path: Path) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    (tmp_path / "g.nt").write_text(
        f'<urn:1> {label} "Mercury" .\n<urn:2> {label} "Mercury" .\n<urn:1> <urn:kind> "metal" .\n'
        '<urn:2> <urn:kind> "planet" .\n<urn:1> <urn:number> "80" .\n<urn:2> <urn:number> "1" .\n'
    )
    build_graph([tmp_path / "g.nt"], tmp_path / "graph")
    tree = Art(
        "?", children=(Art("which?", Search("Mercury", "planet")), Art("number of [1]?", Relate("[1]", "number")))
    )
    sources = Sources([GraphSource(GraphStore(tmp_path / "graph"))])
    trace = await run_tree_alone(tree, sources, ToyGenerator())
    await sources.close()
    assert trace.answers == ["1"]


async def test_limits_hold_for_nodes_at_a_time() -> None:
    gate = asyncio.Event()
    text = ToySource(says={"*": ["p"]}, gate=gate)
    tree = Art("q", children=tuple(Art(f"{i}?", Search(f"s{i}")) for i in range(5)))
    run = new_run("q", ToyGenerator(), Sources([text]), Limits(concurrency=2))
    running = asyncio.create_task(run_tree(run, tree))
    await text.asked_times(2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert text.live == 2
    gate.set()
    await running


async def test_a_tree_and_a_plan_of_the_same_operators_give_the_same(films: Path) -> None:
    plan = (
        'Relate("Tin Comet", "directed by") * Relate("{1}", ^"directed by") * Filter(["{2*}"], "other than Tin Comet")'
    )
    sources = Sources([GraphSource(GraphStore(films))])
    of_plan = await Executor(NoModel(), sources, ToyGenerator()).run(CHAIN.question, plan=plan, strategy="compile")
    of_tree = await run_tree_alone(CHAIN, sources, ToyGenerator())
    await sources.close()
    steps = [node for node in of_plan.nodes if node.kind == "atomic"]
    assert [node.answers for node in steps] == [node.answers for node in of_tree.nodes[1:]]
    assert [node.detail["call"] for node in steps] == [node.detail["call"] for node in of_tree.nodes[1:]]
    assert of_plan.answers == of_tree.answers == ["Glass Harbour"]


async def test_an_operator_of_a_plan_asks_once_for_each_of_a_list_and_about_whom_a_search_found(
    tmp_path: Path,
) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    (tmp_path / "g.nt").write_text(
        f'<urn:1> {label} "Mercury" .\n<urn:2> {label} "Mercury" .\n<urn:1> <urn:kind> "metal" .\n'
        '<urn:2> <urn:kind> "planet" .\n<urn:1> <urn:number> "80" .\n<urn:2> <urn:number> "1" .\n'
    )
    build_graph([tmp_path / "g.nt"], tmp_path / "graph")
    text, generator = ToySource(says={"*": ["p"]}), ToyGenerator({"Which?": ["A", "B"]})
    sources = Sources([GraphSource(GraphStore(tmp_path / "graph"))])
    plan = 'Search("Mercury", "planet") * Relate("{1}", "number")'
    trace = await Executor(NoModel(), sources, generator, judge=Unjudged()).run("?", plan=plan)
    await sources.close()
    assert trace.answers == ["1"]
    executor = Executor(NoModel(), Sources([text]), generator, judge=Unjudged())
    await executor.run("?", plan='Which? * Relate("{1*}", "born in")')
    assert text.asked == ["Which?", "A born in", "B born in"]


async def test_what_a_plan_asks_about_nothing_is_nothing_or_0(films: Path) -> None:
    sources = Sources([GraphSource(GraphStore(films))])
    old = 'Filter(["Tin Comet", "Paper Moons"], "before 1950")'
    executor = Executor(NoModel(), sources, ToyGenerator(), judge=Unjudged())
    counted = await executor.run("?", plan=f"{old} => count")
    named = await executor.run("?", plan=f"{old} * Who directed {{1*}}?")
    await sources.close()
    assert (counted.answers, counted.outcome) == (["0"], "answered")
    assert (named.answers, named.outcome) == ([], "answered")
