"""Laws of running a plan, for random valid expressions over an oracle that answers anything."""

import asyncio
import random
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.limits import Limits
from revelator.node_detail import STATUS_OF
from revelator.plans import (
    Atomic,
    Dependent,
    Expression,
    Sequence,
    bind,
    check,
    list_leaves,
    list_placeholders,
    substitute,
)
from revelator.trace import Node
from serving.executor.recording import Recorder
from serving.executor.scheduler import PlanRun

LIMITS = Limits(leaves=64, fan_out=4)


@st.composite
def plans(draw, size: int = 8) -> Expression:
    """Valid expressions: a right operand's first leaves use a name, so that each has a producer in its left."""
    numbers = count()

    def build(size: int, dependent: bool) -> Expression:
        if size <= 1:
            text = f"leaf {next(numbers)}"
            return Atomic(f"{text} of {{thing}}" if dependent else text)
        split = draw(st.integers(1, size - 1))
        if draw(st.booleans()):
            return Dependent(build(split, dependent), build(size - split, True))
        items: list[Expression] = []
        for part in (build(split, dependent), build(size - split, dependent)):
            items += part.items if isinstance(part, Sequence) else [part]
        return Sequence(tuple(items))

    return build(draw(st.integers(1, size)), False)


def execute(plan: Expression, answers_of, seed: int) -> tuple[list[str], PlanRun, Recorder]:
    """Runs a plan; `seed` decides in which order the calls in flight end."""
    asked: list[str] = []
    waiting: list[asyncio.Event] = []
    chance = random.Random(seed)

    async def answer(node: Node, work: object) -> None:
        asked.append(node.asked or "")
        waiting.append(turn := asyncio.Event())
        await turn.wait()
        node.answers = answers_of(node.asked)

    async def let_end(run: asyncio.Task[None]) -> None:
        while not run.done():
            if waiting:
                waiting.pop(chance.randrange(len(waiting))).set()
            await asyncio.sleep(0)

    async def main() -> tuple[list[str], PlanRun, Recorder]:
        recorder = Recorder("q", "auto")
        plan_run = PlanRun(plan, answer, recorder, LIMITS)
        task = asyncio.create_task(plan_run.run())
        await let_end(task)
        await task
        return asked, plan_run, recorder

    return asyncio.run(main())


def assert_ends_have_causes(recorder: Recorder) -> None:
    """A node has a cause if and only if it has not ended well, and its status is that of the cause."""
    for node in recorder.nodes():
        expected = "ok" if node.cause is None else STATUS_OF.get(node.cause, "unanswered")
        assert node.status == expected and bool(node.error) == bool(node.cause), node


@given(plans(), st.integers())
@settings(max_examples=50)
def test_each_leaf_is_asked_once_with_the_values_of_its_producers(plan, seed):
    assert check(plan) == ()
    asked, run, _ = execute(plan, lambda question: [f"<answer to {question}>"], seed)
    texts, sources = [leaf.text for leaf in list_leaves(plan)], bind(plan).sources
    expected: list[str] = []
    for text, source in zip(texts, sources, strict=True):
        expected.append(substitute(text, {name: f"<answer to {expected[i]}>" for name, i in source.items()}))
    assert sorted(asked) == sorted(expected)
    assert not any(list_placeholders(question) for question in asked)
    answers = [one.answers for i in range(len(texts)) for one in run.list_answered_calls(i)]
    assert answers == [(f"<answer to {q}>",) for q in expected]


@given(plans(6), st.integers(), st.integers())
@settings(max_examples=40)
def test_nodes_and_answers_do_not_depend_on_the_order_in_which_calls_end(plan, seed, other):
    def answers(question: str) -> list[str]:
        return [f"{question}/{n}" for n in range(sum(map(ord, question)) % 3)]

    def seen(seed: int):
        _, _, recorder = execute(plan, answers, seed)
        assert_ends_have_causes(recorder)
        return [(n.id, n.kind, n.parent, n.asked, n.inputs, n.answers, n.status) for n in recorder.nodes()]

    assert seen(seed) == seen(other)


@given(plans(6), st.integers(), st.data())
@settings(max_examples=40)
def test_a_failure_reaches_what_depends_on_it_and_nothing_else(plan, seed, data):
    texts, sources = [leaf.text for leaf in list_leaves(plan)], bind(plan).sources
    broken = data.draw(st.integers(0, len(texts) - 1))
    name = texts[broken].split(" of ")[0]

    def answers(question: str) -> list[str]:
        if question.split(" of ")[0] == name:
            raise RuntimeError("broken")
        return [f"<answer to {question}>"]

    _, run, recorder = execute(plan, answers, seed)
    assert_ends_have_causes(recorder)
    reached = {broken}
    for i, source in enumerate(sources):
        if reached & set(source.values()):
            reached.add(i)
    assert {i for i in range(len(texts)) if not run.list_answered_calls(i)} == reached
