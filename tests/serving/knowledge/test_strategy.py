"""Plans as trees, and the strategy that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.art import Art, Relate, Search, check, parse, render, spelled, to_tree
from revelator.errors import ExpressionError, PlanError
from revelator.language import Atomic, Dependent
from revelator.language import Sequence as ListOf
from revelator.language import parse as parse_expression
from serving.executor.anrag import Models
from serving.executor.limits import Limits
from serving.executor.recording import Recorder
from serving.executor.run import Run
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore
from serving.knowledge.planning import tree_of
from serving.knowledge.run import NoModel
from serving.knowledge.sources import Sources
from serving.knowledge.strategy import AtomicStrategy
from serving.protocols import Completion
from tests.serving.knowledge.toy_sources import ToyGenerator, ToySource

TEXT = st.text(min_size=1, max_size=30).filter(str.strip)


@dataclass
class Writes(NoModel):
    """A revelator that writes one plan."""

    output: str = ""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        assert task == "translate_bnf"
        return [Completion(self.output, tokens_in=5, tokens_out=4)]


def run_of(question: str, output: str = "", generator: ToyGenerator | None = None) -> Run:
    models = Models(Writes(output), NoModel(), generator or ToyGenerator())
    return Run(question, models, Limits(), Recorder(question, "atomic"))


@pytest.mark.parametrize(
    ("plan", "calls"),
    [
        ("Who directed Tin Comet?", ['Relate("Tin Comet", "directed")']),
        ("Who is Ada Quill?", ['Search("Ada Quill")']),
        ("What is the oldest film?", ['Search("What is the oldest film?")']),
        (
            "Who directed Tin Comet? * When was {director} born?",
            ['Relate("Tin Comet", "directed")', 'Relate("[1]", "born")'],
        ),
        (
            "(When did Tin Comet come out? + When did Glass Harbour come out?) * Which of {a} and {b} is earlier?",
            ['Relate("Tin Comet", "come out")', 'Relate("Glass Harbour", "come out")', "[DR]"],
        ),
    ],
)
def test_each_leaf_gets_the_operator_that_its_words_call_for(plan: str, calls: list[str]) -> None:
    tree = tree_of("q?", parse_expression(plan))
    nodes = tree.children or (tree,)
    assert [spelled(node.call) if node.call else "[DR]" for node in nodes] == calls


@given(TEXT, TEXT, TEXT)
def test_every_plan_that_checks_gives_a_tree_that_checks(a: str, b: str, c: str) -> None:
    first = Atomic(f"{a} [7]".replace("{", "("))
    for plan in (
        first,
        Dependent(first, Atomic(f"{b} {{x}}".replace("[", "("))),
        ListOf((first, Atomic(c.replace("{", "(")))),
    ):
        tree = tree_of("Is it [3]?", plan)
        assert check(tree) == (), to_tree(tree)
        assert parse(render(tree)) == tree


async def test_the_models_plan_runs_as_a_tree_over_the_graph(films: Path) -> None:
    run = run_of(
        "Which films did the director of Tin Comet direct?",
        "Who directed Tin Comet? * Which films did {director} direct?",
    )
    strategy = AtomicStrategy(Sources([GraphSource(GraphStore(films))]))
    await strategy(run, None)
    await strategy.close()
    trace = run.recorder.finish()
    assert sorted(trace.answers) == ["Glass Harbour", "Tin Comet"]
    assert (trace.plan_source, trace.usage.model_calls, trace.usage.generator_calls) == ("model", 1, 0)
    assert [node.kind for node in trace.nodes] == ["translate", "merge", "atomic", "atomic"]


async def test_a_callers_tree_runs_as_given() -> None:
    text = ToySource(says={"*": ["p"]})
    run = run_of("q?", generator=ToyGenerator({"a?": ["x"]}))
    await AtomicStrategy(Sources([text]))(run, render(Art("a?", Relate("a", "b"))))
    assert run.recorder.finish().answers == ["x"]
    assert text.asked == ["a b"]


@pytest.mark.parametrize(("plan", "error"), [("{", ExpressionError), (render(Art("[9]?", Search("x"))), PlanError)])
async def test_a_callers_tree_that_cannot_run_is_refused(plan: str, error: type[Exception]) -> None:
    text = ToySource()
    with pytest.raises(error):
        await AtomicStrategy(Sources([text]))(run_of("q?"), plan)
    assert text.asked == []


@pytest.mark.parametrize("output", ["A? * (", "A? * B?"])
async def test_a_plan_of_the_model_that_cannot_run_is_a_plan_error(output: str) -> None:
    with pytest.raises(PlanError, match="model's plan"):
        await AtomicStrategy(Sources([ToySource()]))(run_of("q?", output), None)
