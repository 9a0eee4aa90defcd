"""The strategy `atomic`: a tree of operators over knowledge sources (AtomR, section 3.3).

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
from revelator.limits import DIVIDED, NODE_CHARACTERS, Limits
from revelator.plans.art import Art, Numbered, check, escape, measure_substituted, number_nodes, render, substitute
from revelator.plans.language import ART, BNF
from revelator.plans.operators import spell_call
from revelator.tasks import TRANSLATE_ART
from revelator.trace import Kind, Node, Passage, PlanSource, Trace
from serving.executor import routes
from serving.executor.choices import explain_no_value, list_values
from serving.executor.evidence import Models, answer_from_own_knowledge, copy_answer
from serving.executor.judges import Unjudged
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.executor.tree_answers import (
    KnownAnswer,
    answer_from_answers,
    answer_from_none,
    find_names_beside,
    run_operator,
)
from serving.knowledge.operators import Ids, Query, build_direct_query, build_query, digest_query
from serving.knowledge.sources import Sources
from serving.latency import offload
from serving.protocols import Completion, Generator

log = logging.getLogger(__name__)


def require_valid_tree(art: Art, limits: Limits) -> None:
    """Raises PlanError for a tree that cannot be executed, or that is larger than the limits of the run."""
    nodes = number_nodes(art)
    leaves = sum(not node.children for node in nodes)
    if leaves > limits.leaves:
        raise PlanError(f"the tree has {leaves} leaves; the limit leaves is {limits.leaves}", hint=DIVIDED)
    if (deepest := max(len(node.path) for node in nodes)) > limits.depth:
        raise PlanError(f"the tree is {deepest} steps deep; the limit depth is {limits.depth}", hint=DIVIDED)
    if faults := check(art):
        message = f"the tree cannot be run: {faults[0].message}"
        raise PlanError(message, diagnostics=faults, hint=faults[0].hint)


async def answer_by_tree(run: QuestionRun) -> None:
    """Answers by a tree, the caller's or the model's own; where the model writes none, by a plan."""
    if run.given_plan is not None:
        await run_tree(run, run.given_plan)
        return
    run.recorder.trace.plan_language = ART.name
    tree: Art | None = await routes.translate(run, TRANSLATE_ART, lambda art: require_valid_tree(art, run.limits))
    if tree is not None:
        await run_tree(run, replace(tree, question=escape(run.question)), "model")
        return
    run.recorder.trace.plan_language = BNF.name
    run.degrade(f"no tree that the model wrote could be run ({routes.find_last_fault(run)}): it wrote a plan instead")
    await routes.answer_by_plan(run)


async def run_tree(run: QuestionRun, art: Art, plan_source: PlanSource = "given") -> None:
    """Runs the tree over `run.sources`; the root's answer becomes the answer of the question.

    Raises PlanError before it starts, and Unavailable when nothing at all could be answered because the generator is
    down. What else fails is in the trace.
    """
    require_valid_tree(art, run.limits)
    trace = run.recorder.trace
    trace.plan, trace.plan_source, trace.plan_language = render(art), plan_source, ART.name
    run.recorder.report("planned", trace)
    tree_run = TreeRun(run, art)
    root = await tree_run.run()
    if tree_run.outage and not any(node.answers for node in tree_run.trace_nodes):
        raise tree_run.outage
    run.answer(root.answers)
    run.last_nodes = (root.id,)


async def run_tree_alone(art: Art, sources: Sources, generator: Generator) -> Trace:
    """Runs a tree on its own, without a model that plans, and returns the trace."""
    models = Models(NoModel(), generator, Unjudged())
    run = QuestionRun(art.question, models, sources, Limits(), Recorder(art.question, "atomic"))
    await run_tree(run, art)
    return run.recorder.finish()


class NoModel:
    """Stands for a model or an index that is never called; calling it is a bug."""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        raise NotImplementedError(task)

    async def search(self, query: str, k: int) -> list[Passage]:
        raise NotImplementedError(query)


class TreeRun:
    """One execution of a tree: a trace node and a task for each of its nodes, in breadth-first order."""

    def __init__(self, run: QuestionRun, art: Art) -> None:
        self.sources, self.models, self.limits = run.sources, run.models, run.limits
        self.recorder = run.recorder
        self.numbered = number_nodes(art)
        self.trace_nodes: list[Node] = []
        for at in self.numbered:
            kind: Kind = "merge" if at.node.call is None else "atomic"
            parent = None if at.parent is None else self.trace_nodes[at.parent].id
            self.trace_nodes.append(self.recorder.open(kind, at.node.question, parent=parent))
        self.outage: Unavailable | None = None
        self._run = run
        self._called: dict[str, int] = {}  # by key: who called an operator first
        self._tasks: list[asyncio.Task[None]] = []
        self._slots = asyncio.Semaphore(run.limits.concurrency)

    async def run(self) -> Node:
        """Runs every node and returns the root's trace node."""
        async with asyncio.TaskGroup() as group:
            for at in self.numbered:
                self._tasks.append(group.create_task(self._run_node(at)))
        return self.trace_nodes[0]

    async def _run_node(self, at: Numbered) -> None:
        node, before = self.trace_nodes[at.number], sorted({*at.children, *at.needs})
        node.detail["art"] = at.number
        if before:
            await asyncio.wait([self._tasks[i] for i in before])
        self.recorder.set_predecessors(node, [self.trace_nodes[i].id for i in before] or self._run.last_nodes)
        answers = {i: self._list_values(i) for i in at.needs}
        node.inputs = {f"[{i}]": self.trace_nodes[i].id for i in at.needs}
        if self._is_over_none(at.needs):
            with self.recorder.record(node):
                answer_from_none(node, at.node.question)
            return
        if lacking := [i for i, values in answers.items() if not values]:
            if without := [self.trace_nodes[i] for i in lacking if self.trace_nodes[i].answers]:
                self.recorder.leave_unanswered(node, explain_no_value(without[0]))
            else:
                self.recorder.skip(node, f"no answer from [{'], ['.join(map(str, lacking))}]")
            return
        if (size := sum(measure_substituted(text, answers) for text in at.node.texts)) > NODE_CHARACTERS:
            self.recorder.skip(node, f"with the answers in it the node is too long: over {NODE_CHARACTERS} characters")
            return
        node.asked = substitute(at.node.question, answers)
        asked = partial(build_query, at.node, answers, self._collect_ids(at.needs))
        query = await offload(size, asked) if at.node.call else None
        if query is not None and await self._copy_equal_answer(at, query):
            return
        async with self._slots:
            with self.recorder.record(node):
                await self._record_failure(node, self._operate(at, query) if query else self._reason(at))
                if not node.answers and "none" not in node.detail:
                    await self._fall_back(at)

    def _list_values(self, number: int) -> tuple[str, ...]:
        """The answers of a node that others are asked with."""
        node, needs = self.trace_nodes[number], self.numbered[number].needs
        return list_values(node, substitute(node.question, dict.fromkeys(needs, ())))

    async def _record_failure(self, node: Node, work: Coroutine[None, None, object]) -> None:
        try:
            await work
        except Exception as error:
            log.warning("node %s failed: %s: %s", node.id, type(error).__name__, error)
            node.status, node.error = "failed", f"{type(error).__name__}: {error}"
            if isinstance(error, Unavailable):
                self.outage = error

    async def _copy_equal_answer(self, at: Numbered, query: Query) -> bool:
        """Copies the answer of an equal call of this tree or of the earlier trace; returns whether there is one."""
        node = self.trace_nodes[at.number]
        node.detail |= {
            "call": spell_call(query.call) if query.call else "",
            "key": await offload(query.characters, partial(digest_query, query)),
        }
        first = self._called.setdefault(node.detail["key"], at.number)
        other, how = self._run.earlier_nodes.get(node.detail["key"]), "reused_from"
        if first != at.number:
            await asyncio.wait([self._tasks[first]])
            other, how = self.trace_nodes[first], "shared_from"
            self.recorder.set_predecessors(node, [*(self.trace_nodes[i].id for i in at.needs), other.id])
        if other is None:
            return False
        with self.recorder.record(node):
            copy_answer(node, other, how)
        return True

    async def _operate(self, at: Numbered, query: Query) -> None:
        node = self.trace_nodes[at.number]
        result = await run_operator(self.models, self.sources, node, query, self.limits)
        if result is None:  # a part of the entities was taken: they are who they were
            self._keep_ids(node, self._collect_ids(at.needs))
        elif node.detail.get("method") == result.by and result.typed:
            self._keep_ids(node, result.ids)
            if result.typed.count is not None:
                node.detail["count"] = result.typed.count

    async def _reason(self, at: Numbered) -> None:
        """Answers from the children, or, for a `[DR]` node, from the earlier nodes that it names."""
        node, over = self.trace_nodes[at.number], at.children or at.needs
        depth = len(at.path)
        below = [other for other in self.numbered if other.path[:depth] == at.path and len(other.path) > depth]
        used = {j for other in below for j in other.needs}
        if self._is_over_none([i for i in over if i not in used]):
            answer_from_none(node, node.asked or node.question)
            return
        names = {} if at.children else find_names_beside(at.node.question)
        over = tuple(i for i in over if i in names) or over  # of a comparison: the answers that are compared
        known = [
            KnownAnswer(
                self._write_question(i, names, at.needs),
                tuple(self.trace_nodes[i].answers),
                i not in used,
                self.trace_nodes[i].detail.get("count"),
            )
            for i in over
        ]
        if not over or any(one.is_last and not one.answers for one in known):
            node.status, node.error = "unanswered", "no answer to draw it from"
            return
        await answer_from_answers(self.models, node, node.asked or node.question, [one for one in known if one.answers])
        self._keep_ids(node, self._collect_ids(over))

    def _write_question(self, number: int, names: Mapping[int, str], needs: Sequence[int]) -> str:
        """The question of a node, with the name that a comparison gives to its answer."""
        name = substitute(names.get(number, ""), {i: self.trace_nodes[i].answers for i in needs})
        return f"{self.trace_nodes[number].asked or ''} {name}".strip()

    def _is_over_none(self, numbers: Sequence[int]) -> bool:
        """Whether all of the nodes, at least one, know that there is no answer."""
        return bool(numbers) and all("none" in self.trace_nodes[i].detail for i in numbers)

    async def _fall_back(self, at: Numbered) -> None:
        """Falls back to retrieval with the sub-question itself, as a node below the one that has no answer; and from
        there, where the deployment allows it, to what a language model knows."""
        node = self.trace_nodes[at.number]
        [below] = self.recorder.open_members(node, 1)
        below.kind, below.asked, below.detail["fallback"] = "atomic", node.asked, "asked as it stands"
        with self.recorder.record(below):
            query = build_direct_query(node.asked or node.question, node.question)
            await self._record_failure(below, run_operator(self.models, self.sources, below, query, self.limits))
            if self._run.writing.own_knowledge and below.status == "unanswered":
                await self._record_failure(below, answer_from_own_knowledge(self.models, below))
        node.detail["fallback"] = {"node": below.id, "because": node.error}
        if below.answers:
            node.answers, node.sentence = list(below.answers), below.sentence
            node.status, node.error = "ok", None

    @staticmethod
    def _keep_ids(node: Node, ids: Ids) -> None:
        """Writes the identifiers of the answers into the trace, so that a tree that is run again can reuse them."""
        if any(ids.values()):
            node.detail["ids"] = {source: {name: list(iris) for name, iris in of.items()} for source, of in ids.items()}

    def _collect_ids(self, numbers: Sequence[int]) -> Ids:
        """The identifiers of what the nodes answered, by source and name."""
        merged: dict[str, dict[str, tuple[str, ...]]] = {}
        for number in numbers:
            for source, names in self.trace_nodes[number].detail.get("ids", {}).items():
                merged.setdefault(source, {}).update({name: tuple(iris) for name, iris in names.items()})
        return merged
