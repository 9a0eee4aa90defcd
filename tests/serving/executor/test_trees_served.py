"""The strategy `atomic` in the executor and on the server: events, sources of a deployment, a tree over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from revelator.client import Client
from revelator.errors import ConfigError, ExpressionError, PlanError
from revelator.plans.art import Art, render
from revelator.plans.operators import Relate, Search
from revelator.trace import replay
from serving.executor.executor import Executor
from serving.home.config import read_serving, write_serving
from serving.home.configure import configure
from serving.knowledge.sources import Sources
from serving.protocols import NoModel
from tests.serving.executor.world import stream
from tests.serving.knowledge.toy_sources import ToyGenerator, ToySource

TREE = Art(
    "Where was the director of Lantern Row born?",
    children=(
        Art("Who directed Lantern Row?", Relate("Lantern Row", "directed by")),
        Art("Where was [1] born?", Relate("[1]", "born in")),
    ),
)


@pytest.mark.parametrize("known", [{}, {"a?": ["x"]}, {"a?": ["x"], "b x?": ["y"]}])
async def test_the_trace_of_a_tree_equals_its_events_replayed(known: dict[str, list[str]]) -> None:
    text = ToySource(says={"*": ["a, b, x and y"]})
    executor = Executor(NoModel(), Sources([text]), ToyGenerator(known))
    tree = Art(
        "q?", children=(Art("a?", Search("a")), Art("b [1]?", Relate("[1]", "b")), Art("Is [2] so?", operation="union"))
    )
    events = [e async for e in stream(executor, "q?", plan=render(tree), strategy="atomic")]
    trace = replay(events)
    assert trace.plan_language == "art" and trace.plan == render(tree)
    nodes = {node.id: node for node in trace.nodes}
    assert all(node.parent is None or node.parent in nodes for node in trace.nodes)
    assert all(node.status in ("ok", "unanswered", "failed", "skipped") for node in trace.nodes)
    assert trace.answers == list(known.get("b x?", []))


def test_a_tree_is_asked_over_the_wire(served) -> None:
    served.endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
    }
    with Client(served.url) as client:
        trace = client.ask(TREE.question, plan=render(TREE), strategy="atomic").trace
        assert trace.answers == ["Port Velm"]
        assert [node.asked for node in trace.nodes][1:] == [
            "Who directed Lantern Row?",
            "Where was Ines Calloway born?",
        ]
        assert trace.usage.generator_calls == 2 and trace.usage.retrievals == 2
        for plan, error in (("{", ExpressionError), (render(Art("[4]?", Search("x"))), PlanError)):
            with pytest.raises(error):
                client.ask("q?", plan=plan, strategy="atomic")


def test_a_deployment_keeps_its_sources_and_refuses_a_file_that_is_wrong(tmp_path: Path, index: Path) -> None:
    (tmp_path / "sources.yaml").write_text("sources: [{kind: text}]")
    write_serving(tmp_path, configure(tmp_path, index=index, sources=tmp_path / "sources.yaml"))
    assert read_serving(tmp_path).sources == (tmp_path / "sources.yaml").resolve()
    (tmp_path / "wrong.yaml").write_text("sources: []")
    with pytest.raises(ConfigError, match="sources"):
        configure(tmp_path, index=index, sources=tmp_path / "wrong.yaml")
