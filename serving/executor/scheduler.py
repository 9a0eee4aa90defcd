"""Runs the graph of a plan: each step starts the moment the steps that feed it are done.

There are no levels and no barriers. A step is one asyncio task that waits for its own producers only, so in
`(A * B + C) * D` leaf B starts while C still runs. A producer with several values fans its consumer out: one call a
value, in parallel, and along a chain each value goes on alone. A leaf with several producers, or one that takes a
whole list, waits for all of them. What is asked twice, with the same words or the same operator, is asked once, and
both leaves have the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from revelator.computing.operations import Case, Operand, explain, keep_known, operate
from revelator.errors import Unavailable
from revelator.limits import NODE_CHARACTERS, Limits
from revelator.node_detail import Cause
from revelator.plans import bind, substitute
from revelator.plans.art import Art
from revelator.plans.bnf import measure_substituted
from revelator.plans.graph import GraphStep, read_tree
from revelator.plans.operations import VERDICTS
from revelator.plans.operators import read_call, spell_call
from revelator.trace import Node, join_answers
from serving.executor.choices import NOTHING_CHOSEN, Choice, EndedCall, Pick, choose_values
from serving.executor.evidence import copy_answer
from serving.executor.recording import Recorder
from serving.executor.source_answers import write_answer
from serving.executor.tree_answers import collect_ids
from serving.knowledge.operators import Query, build_query
from serving.latency import offload

log = logging.getLogger(__name__)

Work = Query | Sequence[Node] | None  # an operator, children to answer from, or a question to search for
AnswerNode = Callable[[Node, Work], Awaitable[None]]  # answers `node.asked` and fills the node
JudgeNode = Callable[[Node, Sequence[Node]], Awaitable[None]]  # fills the node from what these answered
NameParts = Callable[[Sequence[Sequence[str]]], Sequence[str]]  # what the question calls each part, by its questions
Outcome = EndedCall | tuple["asyncio.Task[Outcome]", ...]  # of a leaf: one call, or a task for each value


def leave_unnamed(parts: Sequence[Sequence[str]]) -> list[str]:
    return [""] * len(parts)


@dataclass(eq=False)
class PlanRun:
    """One execution of a plan that has passed its check: an expression, or a tree; its nodes come `after` others.

    After `run`, also when it was stopped, the results stand in `list_answered_calls(leaf)` and the nodes are closed.
    """

    plan: Any
    answer: AnswerNode
    recorder: Recorder
    limits: Limits
    after: Sequence[str] = ()
    judge: JudgeNode | None = None
    name_parts: NameParts = leave_unnamed

    def __post_init__(self) -> None:
        self.graph = read_tree(self.plan) if isinstance(self.plan, Art) else bind(self.plan)
        self.steps = self.graph.steps
        self.errors: list[Exception] = []
        self._calls = 0
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        self._group = asyncio.TaskGroup()  # of the leaves and of the members of every fan
        self._tasks: list[asyncio.Task[Outcome]] = []  # one a leaf, in the plan's order
        self._cut_leaves: set[int] = set()  # leaves that were not asked about every answer before them
        self._first: dict[str, tuple[Node, asyncio.Event]] = {}  # by what is asked: who was first, and has it ended
        self.root, self._nodes = self.recorder.open_plan(self.plan, self.after)
        for number, node in enumerate(self._nodes, start=1):
            node.detail["step"] = number  # by which the plan speaks of it

    async def run(self) -> None:
        """Runs every leaf to its end. A leaf's error stands in its node and in `errors`, and is not raised."""
        try:
            async with self._group as group:
                self._tasks += [group.create_task(self._run_step(place)) for place in range(len(self.steps))]
        except BaseExceptionGroup as errors:  # of what no leaf expects: the first ended the others
            raise errors.exceptions[0] from None
        finally:
            self.recorder.close_plan(self.root)

    def list_answered_calls(self, leaf: int) -> list[EndedCall]:
        """The calls of a leaf that gave answers, in the order of the values that they asked about."""
        return [one for one in _list_calls(self._tasks[leaf]) if one and one.answers]

    def is_whole(self, leaf: int) -> bool:
        """Whether a leaf was asked about every answer that there was, and each call gave an answer."""
        return leaf not in self._cut_leaves and all(one and one.answers for one in _list_calls(self._tasks[leaf]))

    def list_answers(self) -> list[str]:
        """The answers of the plan: of its last stage, of a list of each part, each once."""
        ended = [one for step in self.graph.results for one in self.list_answered_calls(step)]
        return list(dict.fromkeys(answer for one in ended for answer in one.answers))

    def find_outage(self) -> Unavailable | None:
        """The error to raise if every call met a service that is down."""
        down = [error for error in self.errors if isinstance(error, Unavailable)]
        return down[0] if down and len(down) == self._calls else None

    async def _run_step(self, place: int) -> Outcome:
        step, node = self.steps[place], self._nodes[place]
        for before in step.inside:
            await _await_calls(self._tasks[before])
        return await (self._run_operation(step, place, node) if step.operation else self._run_leaf(place, node))

    async def _run_leaf(self, leaf: int, node: Node) -> Outcome:
        sources = self.steps[leaf].sources
        if not sources:
            return await self._ask(leaf, node, NOTHING_CHOSEN)
        producers = sorted(set(sources.values()))
        width = self.limits.fan_out
        if len(producers) == 1 and not any(map(self.steps[leaf].takes_all, sources)):
            return await self._follow(leaf, node, producers[0], await self._tasks[producers[0]], width)
        outcomes = {producer: await _await_calls(self._tasks[producer]) for producer in producers}
        return await self._fan_out(leaf, node, outcomes, width)

    async def _follow(self, leaf: int, node: Node, producer: int, outcome: Outcome, width: int) -> Outcome:
        """Continues from each member of the producer as soon as it is done; the members share `width`."""
        if isinstance(outcome, EndedCall):
            return await self._fan_out(leaf, node, {producer: [outcome]}, width)
        share = max(1, width // len(outcome))

        async def follow(member_node: Node, member: asyncio.Task[Outcome]) -> Outcome:
            return await self._follow(leaf, member_node, producer, await member, share)

        return await self._spread(node, outcome, follow)

    async def _spread(
        self, node: Node, items: Sequence[Any], work: Callable[[Node, Any], Coroutine[Any, Any, Outcome]]
    ) -> Outcome:
        """Does the work for each item in a task and a node of its own; for a single item, in the node itself."""
        if len(items) == 1:
            return await work(node, items[0])
        members = zip(self.recorder.open_members(node, len(items)), items, strict=True)
        return tuple(self._group.create_task(work(member, item)) for member, item in members)

    def _leave_out(self, node: Node, cause: Cause, said: str) -> EndedCall:
        self.recorder.leave_out(node, cause, said)
        return EndedCall(node, NOTHING_CHOSEN)

    async def _fan_out(self, leaf: int, node: Node, outcomes: Mapping[int, Sequence[EndedCall]], width: int) -> Outcome:
        list_nodes = {producer: self._nodes[producer].id for producer in outcomes}
        step, ended = self.steps[leaf], [one for calls in outcomes.values() for one in calls]
        choices, is_cut = choose_values(step, outcomes, list_nodes, width)
        if all("none" in one.node.detail for one in ended):
            with self.recorder.record(node):
                write_answer(node, (), "last step", decided=True)
            return EndedCall(node, NOTHING_CHOSEN)
        without = [one.node for one in ended if one.answers and not one.values]
        if not choices and without:
            said = f"“{join_answers(without[0].answers)}” is a verdict on “{without[0].asked or without[0].question}”"
            return self._leave_out(node, "no-value-before", f"{said}, and nothing to ask about")
        if not choices:
            reason = "no values that belong together were found" if is_cut else "a question before it gave no answer"
            return self._leave_out(node, "no-answer-before", f"nothing to ask with: {reason}")
        if without or is_cut:
            self._cut_leaves.add(leaf)
        if is_cut:
            node.detail["truncated"] = f"of more values than the limit lets through, the first {width} were asked"
        most = NODE_CHARACTERS if step.call or step.is_drawn else self.limits.leaf_characters
        if any(sum(measure_substituted(text, choice.values) for text in step.texts) > most for choice in choices):
            limit = "the limit leaf_characters" if most == self.limits.leaf_characters else "the most that is taken"
            said = f"with the answers in it the question is too long; {limit} is {most}"
            return self._leave_out(node, "too-long", said)
        return await self._spread(node, choices, partial(self._ask, leaf))

    def _find_question(self, leaf: int) -> str:
        """The question that a leaf was asked, or its planned text where it was asked for several values."""
        calls = self.list_answered_calls(leaf)
        return (calls[0].node.asked if len(calls) == 1 else None) or self.steps[leaf].text

    async def _write_question(self, leaf: int, node: Node, choice: Choice) -> Work:
        """Writes what a leaf asks, with the chosen values in it, and returns what it is to be answered from."""
        step = self.steps[leaf]
        node.asked = substitute(step.text, choice.values)
        if step.is_drawn:
            return [self._nodes[part] for part in step.parts]
        if step.call is None:
            return None
        calls = {producer: self.list_answered_calls(producer) for producer in step.sources.values()}
        values = {
            name: tuple(dict.fromkeys(value for one in calls[producer] for value in one.values))
            if step.takes_all(name)
            else (choice.values[name],)
            for name, producer in step.sources.items()
        }
        ids = collect_ids([one.node for answered in calls.values() for one in answered])
        is_spelled = read_call(step.text) is not None  # as the leaf of an expression, which has no other question
        make = partial(build_query, step.call, "" if is_spelled else node.asked, step.text, values, ids)
        query = await offload(sum(map(len, step.texts)) + sum(len(v) for found in values.values() for v in found), make)
        node.detail |= {"call": spell_call(query.call or step.call), "key": query.key}
        if is_spelled:
            node.asked = node.detail["call"]
        return query

    async def _ask(self, leaf: int, node: Node, choice: Choice) -> EndedCall:
        work = await self._write_question(leaf, node, choice)
        node.inputs, after = dict(choice.inputs), self.after
        if before := [*choice.inputs.values(), *(self._nodes[place].id for place in self.steps[leaf].inside)]:
            self.recorder.set_predecessors(node, after := tuple(dict.fromkeys(before)))
        asked = node.id if self.steps[leaf].is_drawn else str(node.detail.get("key", node.asked))
        first, ended = self._first.setdefault(asked, (node, asyncio.Event()))
        if first is not node:
            self.recorder.set_predecessors(node, (*after, first.id))
            await ended.wait()
            with self.recorder.record(node):
                copy_answer(node, first, "shared_from")
        else:
            try:
                async with self._slots:
                    self._calls += 1
                    with self.recorder.record(node):
                        await self.answer(node, work)
            except Exception as error:
                log.warning("node %s failed: %s: %s", node.id, type(error).__name__, error)
                self.errors.append(error)
            finally:
                ended.set()
        return EndedCall(node, choice)

    async def _run_operation(self, step: GraphStep, place: int, node: Node) -> Outcome:
        """Works once for each value that the steps of its operand were asked with from outside of it."""
        self.recorder.set_predecessors(node, [self._nodes[before].id for before in step.inside])
        groups = self._find_groups(step)
        if len(groups) > self.limits.fan_out:
            self._cut_leaves.add(place)
            node.detail["truncated"] = f"it was done for the first {self.limits.fan_out} values of {len(groups)}"
            groups = groups[: self.limits.fan_out]
        return await self._spread(node, groups, partial(self._operate, step))

    def _find_groups(self, step: GraphStep) -> list[Choice]:
        """The values from outside that the parts of an operation were asked with, each combination once."""
        found: dict[frozenset[tuple[int, Pick]], Choice] = {}
        for part in step.parts:
            for call in self.list_answered_calls(part):
                outside = {taken: pick for taken, pick in call.choice.picked.items() if taken < step.inside[0]}
                found.setdefault(frozenset(outside.items()), Choice(picked=outside))
        largest = [one for key, one in found.items() if not any(key < other for other in found)]
        return largest or [NOTHING_CHOSEN]

    async def _operate(self, step: GraphStep, node: Node, group: Choice) -> EndedCall:
        operation, parts = step.operation, step.parts
        calls = {
            i: [one for one in self.list_answered_calls(i) if one.choice.agrees(group.picked)] for i in step.inside
        }
        missing = [part for part in parts if not calls[part] and not self._is_known_empty(part)]
        if missing and (operation != "judge" or len(missing) == len(parts)):
            return self._leave_out(node, "no-answer-before", f"nothing to work on: step {missing[0] + 1} has no answer")
        operands = [
            Operand(part, tuple(self._make_case(one, group) for one in calls[part]), label)
            for part, label in zip(parts, self._write_labels(step, node), strict=True)
        ]
        with self.recorder.record(node):
            size = sum(len(answer) for operand in operands for answer in operand.answers)
            of = [one for number in (step.condition.steps if step.condition else ()) for one in calls[number - 1]]
            compared = [self._make_case(one, group) for one in of]
            done = await offload(size, partial(operate, operation, operands, step.chosen, step.condition, compared))
            if done is not None:
                if operation == "count" and (counted := self._find_count(parts)):
                    done = (counted,)
                node.answers, node.detail["method"] = list(done), operation
                if operation in VERDICTS:
                    node.detail["verdict"] = True
            elif self.judge:
                await self.judge(node, [one.node for i in step.inside for one in calls[i]])
                if step.condition:
                    node.answers = keep_known(node.answers, operands)
            if done == ():
                node.detail["none"] = True
            elif not node.answers and node.cause != "fault":
                node.end_without_answer("undecided", explain(operation, operands))
            elif not all(self.is_whole(place) or self._is_known_empty(place) for place in step.inside):
                node.detail["unsupported"] = "a step before it has no answer, or was not asked about every value"
        return EndedCall(node, group)

    def _is_known_empty(self, place: int) -> bool:
        """Whether a step is known to have no values, which is an answer."""
        return all(one and "none" in one.node.detail for one in _list_calls(self._tasks[place]))

    def _find_count(self, parts: Sequence[int]) -> str | None:
        """How many values a single part has where a source knows it, and gave only the first."""
        calls = [one for part in parts for one in self.list_answered_calls(part)]
        count = calls[0].node.detail.get("count") if len(calls) == 1 else None
        return None if count is None else str(count)

    def _write_labels(self, step: GraphStep, node: Node) -> Sequence[str]:
        """What the question calls each part of an operation. A tree's node has a question of its own, which says it."""
        if not step.sources:
            return self.name_parts([[self._find_question(place) for place in chain] for chain in step.branches])
        outcomes = {place: self.list_answered_calls(place) for place in set(step.sources.values())}
        choices, _ = choose_values(step, outcomes, {place: self._nodes[place].id for place in outcomes}, 1)
        chosen = choices[0] if choices else NOTHING_CHOSEN
        node.asked, node.inputs = substitute(step.text, chosen.values), dict(chosen.inputs)
        return [substitute(step.labels.get(part, ""), chosen.values) for part in step.parts]

    def _make_case(self, call: EndedCall, group: Choice) -> Case:
        taken = {place: pick.value for place, pick in call.choice.picked.items() if place not in group.picked}
        return Case(call.answers, taken)


async def _await_calls(task: asyncio.Task[Outcome]) -> list[EndedCall]:
    outcome = await task
    if isinstance(outcome, EndedCall):
        return [outcome]
    return [one for member in outcome for one in await _await_calls(member)]


def _list_calls(task: asyncio.Task[Outcome]) -> list[EndedCall | None]:
    """The calls of a leaf; None for one that has not ended, or whose values are not known yet."""
    if not task.done() or task.cancelled() or task.exception():
        return [None]
    outcome = task.result()
    if isinstance(outcome, EndedCall):
        return [outcome]
    return [one for member in outcome for one in _list_calls(member)]
