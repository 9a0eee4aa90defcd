"""The law of all spellings: a graph survives every language that can spell it.

A graph is drawn, written as a list of steps, as a plan and as a tree, and read again. What is compared says of each
step what it asks and of whose answers, whatever the numbers of steps are, and the white
space in a value: a plan writes what two parts share twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from revelator.errors import ExpressionError
from revelator.plans import art as trees
from revelator.plans import bind, bnf, check, spell_by_numbers
from revelator.plans.art import Art
from revelator.plans.graph import Graph, GraphStep, read_tree
from revelator.plans.language import ART, BNF
from revelator.plans.operations import COMPUTED, CONDITIONAL, OPERATIONS, SIGNS, Condition
from revelator.plans.operators import Call, Search, spell_call
from tests.revelator.plans.test_art import CALLS
from tests.revelator.plans.test_laws import LEAVES, inner_nodes, texts

slow = settings(suppress_health_check=list(HealthCheck), max_examples=150, deadline=None)
# Text that another spelling would read as its own.
ALIKE = st.sampled_from(
    ["[1]", "[[1]]", "[1]]", "[[2]", "{1}", "{{2*}}", "{x}}", '[{"ask": "a"}]', '{"question": "a"}', '[ {"x" + b']
)
SAID = (texts | ALIKE).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))  # JSON joins such halves
CALLED = (CALLS | ALIKE.map(Search)).filter(lambda call: getattr(call, "inverse", None) is not False)  # a tree's alone
plans = st.recursive(st.sampled_from(LEAVES), inner_nodes, max_leaves=8)


def unfold(graph: Graph, place: int) -> Any:
    """What a step does, and in place of each number what the step of that number does."""
    step = graph.steps[place]
    if step.operation:
        compared = [unfold(graph, number - 1) for number in (step.condition.steps if step.condition else ())]
        parts = [part for part in (unfold(graph, part) for part in step.parts) if part not in compared]
        sign = step.condition and (step.condition.sign, compared or step.condition.value.split())
        return step.operation, sorted(parts, key=repr) if compared else parts, sign
    ranks = {name: f"{{{rank}}}" for rank, name in enumerate(step.sources, start=1)}
    used = [(unfold(graph, producer), step.takes_all(name)) for name, producer in step.sources.items()]

    def rank(text: str) -> str:
        return bnf.replace_placeholders(text, lambda name: ranks.get(name, f"{{{name}}}"))

    return step.call.rewrite(rank) if step.call else rank(step.text), used


def unfold_results(graph: Graph, results: Sequence[int]) -> list[Any]:
    return sorted((unfold(graph, result) for result in results), key=repr)


@st.composite
def graphs(draw: st.DrawFn, asked: st.SearchStrategy[str | Call], marks: Sequence[str], names: Sequence[str]) -> Graph:
    """A graph whose steps are `asked` with references as `marks` write them, or operations of these `names`."""
    steps: list[GraphStep] = []
    for place in range(draw(st.integers(1, 6))):
        used = draw(st.lists(st.integers(0, place - 1), max_size=2, unique=True)) if place else []
        if used and draw(st.booleans()):
            name = draw(st.sampled_from(names))
            others = [other for other in range(place) if not {other, *_list_sources(steps, other)}.intersection(used)]
            values = st.sampled_from(["1980", *(f"{{{other + 1}}}" for other in others)])
            condition = draw(st.builds(Condition, st.sampled_from(list(SIGNS)), values))
            steps.append(
                GraphStep("", operation=name, parts=used, condition=condition if name in CONDITIONAL else None)
            )
            continue
        written = {producer: draw(st.sampled_from(marks)).format(producer + 1) for producer in used}
        said = " ".join(["", *(f"{{{mark}}}" for mark in written.values())])
        what = draw(asked)
        call = None if isinstance(what, str) else what.rewrite(lambda text, said=said: _escape(text) + said)
        text = spell_call(call) if call else _escape(what) + said  # type: ignore[arg-type]
        steps.append(GraphStep(text, {mark: producer for producer, mark in written.items()}, call))
    needed = {producer for step in steps for producer in _list_needs(step)}
    return Graph(tuple(steps), tuple(place for place in range(len(steps)) if place not in needed))


def _escape(text: str) -> str:
    return bnf.escape(" ".join(text.split()) or "?")


def _list_sources(steps: Sequence[GraphStep], place: int) -> Iterator[int]:
    """All that a step needs. What is compared is not found from a part: the part would be no result any more."""
    for producer in _list_needs(steps[place]):
        yield producer
        yield from _list_sources(steps, producer)


def _list_needs(step: GraphStep) -> list[int]:
    compared = step.condition.steps if step.condition else ()
    return [*step.sources.values(), *step.parts, *(number - 1 for number in compared)]


def write_list(graph: Graph) -> list[dict[str, Any]]:
    """The graph as a list of steps."""

    def write(step: GraphStep) -> dict[str, Any]:
        if not step.operation:
            return {"ask": step.text}
        more = {"sign": step.condition.sign, "value": step.condition.value} if step.condition else {}
        compared = step.condition.steps if step.condition else ()
        of = [part + 1 for part in step.parts if part + 1 not in compared]
        return {"operation": step.operation, "of": of, **more}

    return list(map(write, graph.steps))


def read_list(steps: list[dict[str, Any]]) -> bnf.Expression:
    """The plan that a list of steps is read as. One that needs more steps than a list may have is not tried."""
    try:
        return BNF.parse(json.dumps(steps))
    except ExpressionError as error:
        assume("too many steps" not in str(error))
        raise


def write_tree(graph: Graph) -> Art:
    """The graph as a tree whose nodes all stand below the root, in their order."""

    values = {f"{number}*": f"[{number}]" for number in range(1, len(graph.steps) + 1)}

    def write(step: GraphStep) -> Art:
        if step.call:
            return Art("?", step.call.rewrite(lambda text: bnf.substitute(trees.escape(text), values)))
        named = " ".join(f"[{part + 1}]" for part in step.parts)
        return Art(named, operation="" if step.operation == "judge" else step.operation)

    return Art("?", children=tuple(map(write, graph.steps)))


def is_list(graph: Graph) -> bool:
    """Whether a list of steps says what a plan does: nothing is done apart for each value of a step, or names the steps
    whose value is the answer, and the answer is all that nothing else uses."""
    steps = graph.steps
    needed = {producer for step in steps for producer in _list_needs(step)}
    return not any(
        step.chosen or any(source < step.inside[0] for place in step.inside for source in steps[place].sources.values())
        for step in steps
        if step.operation
    ) and {*range(len(steps))} - needed == {*graph.results}


@slow
@given(graphs(SAID | CALLED, ["{}", "{}*"], list(OPERATIONS)))
def test_a_graph_survives_a_list_of_steps_and_the_plan_that_it_is_read_as(graph: Graph) -> None:
    plan = read_list(write_list(graph))
    again = BNF.parse(BNF.render(plan))
    assert again == plan
    for read in map(bind, (plan, again)):
        assert unfold_results(read, read.results) == unfold_results(graph, graph.results)


@slow
@given(graphs(CALLED, ["{}*"], [*COMPUTED, "judge"]))
def test_a_graph_of_operators_survives_a_tree(graph: Graph) -> None:
    tree = write_tree(graph)
    read = read_tree(ART.parse(ART.render(tree)))
    assert unfold_results(read, read.steps[-1].parts) == unfold_results(graph, graph.results)
    plan = bind(read_list(write_list(graph)))
    assert unfold_results(plan, plan.results) == unfold_results(read, read.steps[-1].parts)


@slow
@given(plans)
def test_a_plan_survives_a_list_of_steps_where_it_has_its_form(plan: bnf.Expression) -> None:
    assume(not check(plan))
    graph = bind(spell_by_numbers(plan))
    assume(is_list(graph))
    read = bind(read_list(write_list(graph)))
    assert unfold_results(read, read.results) == unfold_results(graph, graph.results)
