"""Equal operators of a tree are called once, and an edited tree takes over what has not changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from revelator.plans.art import Art, render
from revelator.plans.operators import Filter, Relate, Search
from revelator.trace import Trace, Usage
from serving.executor.executor import Executor
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore, build_graph
from serving.knowledge.sources import Sources
from serving.protocols import NoModel
from tests.serving.executor.test_tree_runs import CHAIN
from tests.serving.knowledge.toy_sources import ToyGenerator, ToySource, run_tree_alone

WHO, BORN, DIED = "Who directed UHF?", "When was [1] born?", "Where did [1] die?"
SAID = {
    "UHF director": ["Jay Levey directed UHF."],
    "Jay Levey born": ["Jay Levey was born in 1946."],
    "Jay Levey died": ["Jay Levey died in Ayr."],
}
KNOWN = {WHO: ["Jay Levey"], "When was Jay Levey born?": ["1946"], "Where did Jay Levey die?": ["Ayr"]}


def tree(*children: Art) -> Art:
    return Art("What of UHF's director?", children=children)


async def ask(art: Art, sources: Sources, generator: ToyGenerator, reuse: Trace | None = None) -> Trace:
    executor = Executor(NoModel(), sources, generator)
    if reuse:
        reuse = Trace.from_json(json.loads(json.dumps(reuse.to_json())))
    return await executor.run(art.question, plan=render(art), strategy="atomic", reuse=reuse)


async def test_equal_operators_of_a_tree_are_called_once_and_both_stand_in_the_trace() -> None:
    text, generator = ToySource(says=SAID), ToyGenerator(KNOWN)
    leaf = Art(WHO, Relate("UHF", "director"))
    born = Art(BORN.replace("[1]", "[2]"), Relate("[2]", "born"))
    trace = await run_tree_alone(tree(leaf, leaf, born), Sources([text]), generator)
    assert text.asked == ["UHF director", "Jay Levey born"] and len(generator.requests) == 2
    _, first, second, _ = trace.nodes
    assert second.detail["shared_from"] == first.id and second.detail["step"] == 2
    assert (second.answers, second.documents, second.usage) == (first.answers, first.documents, Usage())
    assert trace.answers == ["Jay Levey", "1946"] and trace.outcome == "answered"


async def test_a_failure_is_shared_with_its_fallback() -> None:
    text, generator = ToySource(says={WHO: ["p"]}), ToyGenerator(KNOWN)
    leaf = Art(WHO, Relate("UHF", "director"))
    trace = await run_tree_alone(tree(leaf, leaf), Sources([text]), generator)
    assert text.asked == ["UHF director", WHO] and trace.answers == ["Jay Levey"]
    assert [node.status for node in trace.nodes] == ["ok"] * 4


async def test_an_edited_tree_asks_only_what_has_changed() -> None:
    text, generator = ToySource(says=SAID), ToyGenerator(KNOWN)
    sources = Sources([text])
    first = await ask(tree(Art(WHO, Relate("UHF", "director")), Art(BORN, Relate("[1]", "born"))), sources, generator)
    text.asked.clear()
    edited = tree(Art(WHO, Relate("UHF", "director")), Art(DIED, Relate("[1]", "died")))
    again = await ask(edited, sources, generator, reuse=first)
    assert text.asked == ["Jay Levey died"] and again.answers == ["Ayr"] and again.usage.generator_calls == 1
    assert again.nodes[1].detail["reused_from"] == first.nodes[1].id and again.nodes[1].usage == Usage()
    assert again.nodes[1].documents == first.nodes[1].documents


async def test_an_operator_that_is_called_otherwise_is_asked_again_though_its_question_is_the_same(films: Path) -> None:
    sources, generator = Sources([GraphSource(GraphStore(films))]), ToyGenerator()
    first = await ask(Art("What of Ada Quill?", Relate("Ada Quill", "directed by")), sources, generator)
    for inverse in (True, False):
        call = Relate("Ada Quill", "directed by", inverse)
        again = await ask(Art("What of Ada Quill?", call), sources, generator, reuse=first)
        assert "reused_from" not in again.nodes[0].detail
    await sources.close()


async def test_what_a_graph_answered_is_taken_over_with_its_identities(films: Path) -> None:
    sources, generator = Sources([GraphSource(GraphStore(films))]), ToyGenerator()
    first = await ask(CHAIN, sources, generator)
    genre = Art("Which of [2] are comedies?", Filter(("[2]",), "Comedy"))
    again = await ask(replace(CHAIN, children=(*CHAIN.children[:2], genre)), sources, generator, reuse=first)
    await sources.close()
    assert again.answers == ["Tin Comet"] and again.usage.retrievals == 1
    assert ["reused_from" in node.detail for node in again.nodes] == [False, True, True, False]


async def test_a_name_that_stands_for_another_thing_now_is_not_the_same_question(tmp_path: Path) -> None:
    lines = [
        "<g:god> <http://www.w3.org/2000/01/rdf-schema#label> \"Mercury\" .",
        "<g:god> <g:kind> \"god\" .",
        "<g:god> <g:symbol> \"staff\" .",
        "<g:planet> <http://www.w3.org/2000/01/rdf-schema#label> \"Mercury\" .",
        "<g:planet> <g:kind> \"planet\" .",
        "<g:planet> <g:symbol> \"circle\" .",
    ]  # fmt: skip
    (tmp_path / "kb.nt").write_text("\n".join(lines) + "\n")
    build_graph([tmp_path / "kb.nt"], tmp_path / "graph")
    sources, generator = Sources([GraphSource(GraphStore(tmp_path / "graph"))]), ToyGenerator()

    def asked(kind: str) -> Art:
        return tree(Art("Who is it?", Search("Mercury", kind)), Art("What is its sign?", Relate("[1]", "symbol")))

    first = await ask(asked("god"), sources, generator)
    again = await ask(asked("planet"), sources, generator, reuse=first)
    same = await ask(asked("god"), sources, generator, reuse=first)
    await sources.close()
    assert (first.answers, again.answers, same.answers) == (["staff"], ["circle"], ["staff"])
    assert ["reused_from" in node.detail for node in same.nodes[1:]] == [True, True]


async def test_a_count_of_what_was_taken_over_is_that_of_the_things(tmp_path: Path) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    lines = [f'<g:{n}> {label} "Alien" .\n<g:{n}> <g:made_by> <g:x> .' for n in range(3)]
    (tmp_path / "kb.nt").write_text("\n".join([*lines, f'<g:x> {label} "Bo" .']) + "\n")
    build_graph([tmp_path / "kb.nt"], tmp_path / "graph")
    sources, generator = Sources([GraphSource(GraphStore(tmp_path / "graph"))]), ToyGenerator()
    made = tree(Art("What did Bo make?", Relate("Bo", "made by", True)), Art("How many are in [1]?", operation="count"))
    first = await ask(made, sources, generator)
    again = await ask(made, sources, generator, reuse=first)
    await sources.close()
    assert first.answers == again.answers == ["3"] and again.usage.retrievals == 0
