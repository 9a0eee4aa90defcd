"""Plans as trees, and the strategy `atomic` that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from revelator.limits import Limits
from revelator.plans.art import Art, render
from revelator.plans.language import ART
from revelator.plans.operators import Relate, Search
from revelator.trace import Trace
from serving.executor import routes
from serving.executor.evidence import Models
from serving.executor.judges import Unjudged
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore
from serving.knowledge.operators import Source
from serving.knowledge.sources import Sources
from serving.protocols import Completion, NoModel
from tests.serving.knowledge.toy_sources import ToyGenerator, ToySource

TEXT = st.text(min_size=1, max_size=30).filter(str.strip)


@dataclass
class Writes(NoModel):
    """A revelator that writes one plan, and at each temperature the next of its trees."""

    plan: str = ""
    trees: Sequence[str] = ()

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        if task == "refine":
            return [Completion("")]
        if task == "translate_bnf":
            return [Completion(self.plan, tokens_in=5, tokens_out=4)]
        assert task == "translate_art"
        text, *self.trees = self.trees or ["{"]
        return [Completion(text, tokens_in=5, tokens_out=40)]


def run_of(
    question: str,
    plan: str = "",
    trees: Sequence[str] = (),
    generator: ToyGenerator | None = None,
    source: Source | None = None,
    given: Art | None = None,
) -> QuestionRun:
    models = Models(Writes(plan, trees), generator or ToyGenerator(), Unjudged())
    sources = Sources([source or ToySource()])
    return QuestionRun(question, models, sources, Limits(), Recorder(question, "atomic"), given_plan=given)


ASKED = "Which films did the director of Tin Comet direct?"
PLANNED = "Who directed Tin Comet? * Which films did {director} direct?"
OWN = Art(
    "Which films, then?",
    children=(
        Art("Who directed Tin Comet?", Relate("Tin Comet", "directed by")),
        Art("Which films did [1] direct?", Relate("[1]", "directed by", inverse=True)),
    ),
)


async def over(films: Path, run: QuestionRun) -> Trace:
    run.sources = Sources([GraphSource(GraphStore(films))])
    await routes.answer_by_plan(run, ART)
    await run.sources.close()
    return run.recorder.finish()


async def test_the_models_own_tree_runs_over_the_graph_about_the_question_as_it_was_asked(films: Path) -> None:
    trace = await over(films, run_of(ASKED, trees=[render(OWN)]))
    assert sorted(trace.answers) == ["Glass Harbour", "Tin Comet"] and not trace.degraded
    assert (trace.plan_source, trace.usage.model_calls, trace.usage.generator_calls) == ("model", 1, 0)
    assert [node.kind for node in trace.nodes] == ["translate", "merge", "atomic", "atomic"]
    assert trace.plan == render(replace(OWN, question=ASKED)) and trace.nodes[1].question == ASKED


async def test_the_first_tree_that_can_be_run_is_taken_and_what_was_wrong_with_others_is_told(films: Path) -> None:
    wide = Art("q?", children=(Art("a?", Search("a")),) * 200)
    trace = await over(films, run_of(ASKED, trees=["{", render(Art("[3]?", Search("x"))), render(wide), render(OWN)]))
    assert sorted(trace.answers) == ["Glass Harbour", "Tin Comet"] and not trace.degraded
    said = [diagnostic["message"] for diagnostic in trace.diagnostics]
    assert len(said) == 3 and "not JSON" in said[0] and "[3]" in said[1] and "leaves" in said[2]
    assert len(trace.nodes[0].detail["attempts"]) == 4


async def test_without_a_tree_of_its_own_the_models_plan_is_run_and_the_trace_says_why(films: Path) -> None:
    run = run_of(ASKED, PLANNED)
    run.sources = Sources([GraphSource(GraphStore(films))])
    await routes.answer_by_plan(run, ART)
    trace = run.recorder.finish()
    await run.sources.close()
    assert trace.degraded and "wrote a plan instead" in trace.reason and "not JSON" in trace.reason
    assert (trace.plan, trace.plan_language) == (PLANNED, "bnf")
    assert [node.kind for node in trace.nodes][:3] == ["translate", "translate", "dependent"]


async def test_what_a_node_compares_is_known_by_the_name_beside_it(films: Path) -> None:
    chains = [Art(f"Who is in {film}?", Search(film)) for film in ("Tin Comet", "Paper Moons")]
    years = [Art(f"When did [{number}] come out?", Relate(f"[{number}]", "release year")) for number in (1, 2)]
    last = Art("Which came out later, Ada ([3]) or Bo ([4])?", operation="argmax")
    trace = await over(films, run_of("Which is later?", trees=[render(Art("q?", children=(*chains, *years, last)))]))
    assert trace.answers == ["Bo"] and trace.usage.generator_calls == 0


async def test_a_callers_tree_runs_as_given() -> None:
    text = ToySource(says={"*": ["p"]})
    tree = Art("a?", Relate("a", "b"))
    run = run_of("q?", generator=ToyGenerator({"a?": ["x"]}), source=text, given=tree)
    await routes.answer_by_plan(run, ART)
    assert run.recorder.finish().answers == ["x"]
    assert text.asked == ["a b"]


@pytest.mark.parametrize("output", ["A? * (", "A? * B?"])
async def test_without_a_tree_or_a_plan_that_can_be_run_the_question_goes_through_the_loop(output: str) -> None:
    run = run_of("q?", output)
    await routes.answer_by_plan(run, ART)
    trace = run.recorder.finish()
    assert trace.degraded and "went through the loop" in trace.reason and trace.plan_language == "bnf"
    assert [node.kind for node in trace.nodes] == ["translate", "translate", "refine", "merge"]
