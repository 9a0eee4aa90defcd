"""The strategy `answer_by_tree`: a tree of atomic operators over knowledge sources (AtomR, section 3.3).

A node starts when the nodes that it names have ended (and a parent when its children have): siblings that need
nothing of one another run side by side. Its trace node carries `detail["art"]`, the number that `[i]` refers to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial

from revelator.errors import PlanError, Unavailable
from revelator.limits import NODE_CHARACTERS, Limits
from revelator.plans.art import (
    Art,
    Numbered,
    check,
    escape,
    number_nodes,
    parse,
    render,
    spell_call,
    substitute,
    substituted_size,
)
from revelator.tasks import TRANSLATE_ART
from revelator.trace import Kind, Node, Passage, PlanSource, Trace
from serving.executor import routes
from serving.executor.evidence import Models, answer_from_own_knowledge, copy_answer
from serving.executor.recording import Recorder
from serving.executor.run import Run
from serving.executor.tree_answers import KnownAnswer, find_names_beside, reason, reason_over_none, run_operator
from serving.knowledge.operators import Ids, Query, build_direct_query, build_query, digest_query
from serving.knowledge.sources import Sources
from serving.pauses import offload
from serving.protocols import Completion, Generator

log = logging.getLogger(__name__)


def require_valid_tree(art: Art, limits: Limits) -> None:
    """Raises PlanError for a tree that cannot be executed, or that is larger than the limits of the run."""
    nodes = number_nodes(art)
    leaves = sum(not node.children for node in nodes)
    if leaves > limits.leaves:
        raise PlanError(f"the tree has {leaves} leaves; the limit leaves is {limits.leaves}")
    if (deepest := max(len(node.path) for node in nodes)) > limits.depth:
        raise PlanError(f"the tree is {deepest} steps deep; the limit depth is {limits.depth}")
    if faults := check(art):
        raise PlanError(f"the tree cannot be run: {faults[0].message}", hint=f"{faults[0].place}: {faults[0].hint}")


async def answer_by_tree(run: Run) -> None:
    """Answers by a tree, the caller's as JSON or the model's own; where the model writes none, by a plan.

    Raises ExpressionError and PlanError, before any source is asked, for a caller's tree that cannot be run.
    """
    if run.given_plan is not None:
        await run_tree(run, await offload(len(run.given_plan), partial(parse, run.given_plan)))
        return
    run.recorder.trace.plan_language = "art"
    tree: Art | None = await routes.translate(run, TRANSLATE_ART, lambda art: require_valid_tree(art, run.limits))
    if tree is not None:
        await run_tree(run, replace(tree, question=escape(run.question)), "model")
        return
    run.recorder.trace.plan_language = "bnf"
    run.degrade(f"no tree that the model wrote could be run ({routes.find_last_fault(run)}): it wrote a plan instead")
    await routes.answer_by_plan(run)


async def run_tree(run: Run, art: Art, plan_source: PlanSource = "given") -> None:
    """Runs the tree over `run.sources`; the root's answer becomes the answer of the question.

    Raises PlanError before it starts, and Unavailable when nothing at all could be answered because the generator is
    down. What else fails is in the trace.
    """
    require_valid_tree(art, run.limits)
    trace = run.recorder.trace
    trace.plan, trace.plan_source, trace.plan_language = render(art), plan_source, "art"
    run.recorder.report("planned", trace)
    tree_run = TreeRun(run, art)
    root = await tree_run.run()
    if tree_run.outage and not any(box.answers for box in tree_run.boxes):
        raise tree_run.outage
    run.answer(root.answers)
    run.last_nodes = (root.id,)


async def run_tree_alone(art: Art, sources: Sources, generator: Generator, limits: Limits | None = None) -> Trace:
    """Runs a tree on its own, without a model that plans, and returns the trace."""
    models = Models(NoModel(), NoModel(), generator)
    run = Run(art.question, models, limits or Limits(), Recorder(art.question, "atomic"), sources=sources)
    await run_tree(run, art)
    return run.recorder.finish()


def _count_characters(query: Query) -> int:
    return len(query.question) + sum(map(len, query.heads))


class NoModel:
    """Stands for a model or an index that is never called; calling it is a bug."""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        raise NotImplementedError(task)

    async def search(self, query: str, k: int) -> list[Passage]:
        raise NotImplementedError(query)


class TreeRun:
    """One execution of a tree: a trace node (`boxes`) and a task for each node, in breadth-first order."""

    def __init__(self, run: Run, art: Art) -> None:
        assert run.sources is not None
        self.models, self.recorder, self.first = run.models, run.recorder, run.last_nodes
        self.sources = run.sources
        self.writing = run.writing
        self.nodes = number_nodes(art)
        self.boxes: list[Node] = []
        for at in self.nodes:
            kind: Kind = "merge" if at.node.call is None else "atomic"
            parent = None if at.parent is None else self.boxes[at.parent].id
            self.boxes.append(self.recorder.open(kind, at.node.question, parent=parent))
        self.outage: Unavailable | None = None
        self._called: dict[str, int] = {}  # by key: who called an operator first
        self._earlier = run.earlier_nodes
        self._tasks: list[asyncio.Task[None]] = []
        self.limits = run.limits
        self._slots = asyncio.Semaphore(run.limits.concurrency)

    async def run(self) -> Node:
        """Runs every node and returns the root's trace node."""
        async with asyncio.TaskGroup() as group:
            for at in self.nodes:
                self._tasks.append(group.create_task(self._run_node(at)))
        return self.boxes[0]

    async def _run_node(self, at: Numbered) -> None:
        box, before = self.boxes[at.number], sorted({*at.children, *at.needs})
        box.detail["art"] = at.number
        if before:
            await asyncio.wait([self._tasks[i] for i in before])
        self.recorder.set_predecessors(box, [self.boxes[i].id for i in before] or self.first)
        answers = {i: tuple(self.boxes[i].answers) for i in at.needs}
        box.inputs = {f"[{i}]": self.boxes[i].id for i in at.needs}
        if self._is_over_none(at.needs):
            with self.recorder.record(box):
                reason_over_none(box, at.node.question)
            return
        if lacking := [i for i, values in answers.items() if not values]:
            self.recorder.skip(box, f"no answer from [{'], ['.join(map(str, lacking))}]")
            return
        if (size := sum(substituted_size(text, answers) for text in at.node.texts)) > NODE_CHARACTERS:
            self.recorder.skip(box, f"with the answers in it the node is too long: over {NODE_CHARACTERS} characters")
            return
        box.asked = substitute(at.node.question, answers)
        asked = partial(build_query, at.node, answers, self._collect_ids(at.needs))
        query = await offload(size, asked) if at.node.call else None
        if query is not None and await self._copy_equal_answer(at, query):
            return
        async with self._slots:
            with self.recorder.record(box):
                await self._record_failure(box, self._operate(at, query) if query else self._reason(at))
                if not box.answers and "none" not in box.detail:
                    await self._fall_back(at)

    async def _record_failure(self, node: Node, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            log.warning("node %s failed: %s: %s", node.id, type(error).__name__, error)
            node.status, node.error = "failed", f"{type(error).__name__}: {error}"
            if isinstance(error, Unavailable):
                self.outage = error

    async def _copy_equal_answer(self, at: Numbered, query: Query) -> bool:
        """Copies the answer of an equal call of this tree or of the earlier trace; returns whether there is one."""
        box = self.boxes[at.number]
        box.detail |= {
            "call": spell_call(query.call) if query.call else "",
            "key": await offload(_count_characters(query), partial(digest_query, query)),
        }
        first = self._called.setdefault(box.detail["key"], at.number)
        other, how = self._earlier.get(box.detail["key"]), "reused_from"
        if first != at.number:
            await asyncio.wait([self._tasks[first]])
            other, how = self.boxes[first], "shared_from"
            self.recorder.set_predecessors(box, [*(self.boxes[i].id for i in at.needs), other.id])
        if other is None:
            return False
        with self.recorder.record(box):
            copy_answer(box, other, how)
        return True

    async def _operate(self, at: Numbered, query: Query) -> None:
        box = self.boxes[at.number]
        gathered = await run_operator(self.models, self.sources, box, query, self.limits)
        if gathered is None:  # a part of the entities was taken: they are who they were
            self._keep_ids(box, self._collect_ids(at.needs))
        elif box.detail.get("method") == gathered.by and gathered.typed:
            self._keep_ids(box, gathered.ids)
            if gathered.typed.count is not None:
                box.detail["count"] = gathered.typed.count

    async def _reason(self, at: Numbered) -> None:
        """Answers from the children, or, for a `[DR]` node, from the earlier nodes that it names."""
        box, over = self.boxes[at.number], at.children or at.needs
        depth = len(at.path)
        below = [other for other in self.nodes if other.path[:depth] == at.path and len(other.path) > depth]
        used = {j for other in below for j in other.needs}
        if self._is_over_none([i for i in over if i not in used]):
            reason_over_none(box, box.asked or box.question)
            return
        names = {} if at.children else find_names_beside(at.node.question)
        over = tuple(i for i in over if i in names) or over  # of a comparison: the answers that are compared
        known = [
            KnownAnswer(
                self._write_question(i, names, at.needs),
                tuple(self.boxes[i].answers),
                i not in used,
                self.boxes[i].detail.get("count"),
            )
            for i in over
        ]
        if not over or any(one.is_last and not one.answers for one in known):
            box.status, box.error = "unanswered", "no answer to draw it from"
            return
        await reason(self.models, box, box.asked or box.question, [one for one in known if one.answers])
        self._keep_ids(box, self._collect_ids(over))

    def _write_question(self, number: int, names: Mapping[int, str], needs: Sequence[int]) -> str:
        """The question of a node, with the name that a comparison gives to its answer."""
        name = substitute(names.get(number, ""), {i: self.boxes[i].answers for i in needs})
        return f"{self.boxes[number].asked or ''} {name}".strip()

    def _is_over_none(self, numbers: Sequence[int]) -> bool:
        """Whether all of the nodes, at least one, know that there is no answer."""
        return bool(numbers) and all("none" in self.boxes[i].detail for i in numbers)

    async def _fall_back(self, at: Numbered) -> None:
        """Falls back to retrieval with the sub-question itself, as a node below the one that has no answer; and from
        there, where the deployment allows it, to what a language model knows."""
        box = self.boxes[at.number]
        [node] = self.recorder.open_members(box, 1)
        node.kind, node.asked, node.detail["fallback"] = "atomic", box.asked, "direct RAG"
        with self.recorder.record(node):
            await self._record_failure(
                node, self._retrieve(node, build_direct_query(box.asked or box.question, box.question))
            )
            if self.writing.own_knowledge and node.status == "unanswered":
                await self._record_failure(node, answer_from_own_knowledge(self.models, node))
        box.detail["fallback"] = {"node": node.id, "because": box.error}
        if node.answers:
            box.answers, box.sentence = list(node.answers), node.sentence
            box.status, box.error = "ok", None

    async def _retrieve(self, node: Node, query: Query) -> None:
        await run_operator(self.models, self.sources, node, query, self.limits)

    @staticmethod
    def _keep_ids(box: Node, ids: Ids) -> None:
        """Writes the identifiers of the answers into the trace, so that a tree that is run again can reuse them."""
        if any(ids.values()):
            box.detail["ids"] = {source: {name: list(iris) for name, iris in of.items()} for source, of in ids.items()}

    def _collect_ids(self, numbers: Sequence[int]) -> Ids:
        """The identifiers of what the nodes answered, by source and name."""
        merged: dict[str, dict[str, tuple[str, ...]]] = {}
        for number in numbers:
            for source, names in self.boxes[number].detail.get("ids", {}).items():
                merged.setdefault(source, {}).update({name: tuple(iris) for name, iris in names.items()})
        return merged
