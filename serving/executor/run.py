"""One question on its way through the executor: what it may use, what it has written, and how a leaf is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from revelator.errors import RevelatorError, Unavailable
from revelator.limits import Limits
from revelator.node_detail import Detail
from revelator.plans.logic import read_conditions
from revelator.plans.operators import read_call
from revelator.tasks import Step
from revelator.trace import Kind, Node
from serving.executor.evidence import Models, answer_from_own_knowledge, copy_answer
from serving.executor.leaf_cache import LeafCache, make_key
from serving.executor.recording import Recorder
from serving.executor.scheduler import PlanRun, Work
from serving.executor.source_answers import answer_from_sources
from serving.executor.tree_answers import answer_from_children, run_operator
from serving.knowledge.operators import Query, build_direct_query
from serving.knowledge.sources import Sources
from serving.protocols import Writing


@dataclass
class QuestionRun:
    """The state of one question: what it may use, what it has written, and how far it has come."""

    question: str
    models: Models
    sources: Sources  # that every leaf asks
    limits: Limits
    recorder: Recorder
    route: str = "complex"  # the route that was taken; a given plan goes as a complex question does
    last_nodes: tuple[str, ...] = ()  # ids of the nodes that the next one comes after
    plan: PlanRun | None = None
    steps: list[Step] = field(default_factory=list)
    given_plan: Any = None  # the caller's own, in the language of its strategy
    earlier_nodes: Mapping[str, Node] = field(default_factory=dict)  # leaves of an earlier trace, by what was asked
    writing: Writing = field(default_factory=Writing)
    style: str = ""  # in which language and tone the answer's text is wanted
    cache: LeafCache | None = None  # answers of leaves that earlier questions asked
    names_parts: bool = True  # the question's words name the parts of a comparison

    def open(self, kind: Kind, question: str | None = None) -> Node:
        """Opens a node of the trace that comes after the last one."""
        node = self.recorder.open(kind, question or self.question, after=self.last_nodes)
        self.last_nodes = (node.id,)
        return node

    async def ask(self, node: Node, work: Work = None, query: str | None = None) -> None:
        """Answers a step: with its answer in the earlier trace, if it was asked there; else as an operator, from the
        answers of other steps, from the cache, or from the sources. What a logical `query` found is never reused from
        an earlier trace."""
        asked = node.asked or node.question
        is_drawn = work is not None and not isinstance(work, Query)
        earlier = None if query or is_drawn else self.earlier_nodes.get(node.detail.get("key", asked))
        if earlier:
            copy_answer(node, earlier, "reused_from")
        elif work is not None:
            await self._run_or_fall_back(node, work)
        else:
            query = query or read_conditions(asked)
            await self._ask_sources(node, self.sources, query, self.limits.retries)

    async def _ask_sources(self, node: Node, sources: Sources, query: str | None, retries: int) -> None:
        """Puts a leaf to the sources, or answers it from the cache. If it has no answer, or each of them failed, it is
        put to those that were not asked, as a node below, whose answer becomes that of the leaf."""
        lost: Unavailable | None = None
        try:
            if self.cache is None:
                await self._find_answer(node, sources, query, retries)
            else:
                key = make_key(node, query, sources, self.limits, self.writing.own_knowledge)
                await self.cache.answer(node, key, lambda: self._find_answer(node, sources, query, retries))
        except Unavailable as error:
            asked = node.detail.get("sources", ())
            if not asked or not all("error" in report for report in asked):
                raise  # a model is gone, and would be for other sources, too
            lost = error
        others = _find_others(node, sources, retries)
        if others and (lost or node.status == "unanswered"):
            below = self.recorder.open("atomic", node.question, parent=node.id, id=f"{node.id}.1")
            below.asked, below.detail["fallback"] = node.asked, "put to other sources"
            node.detail["fallback"] = {"node": below.id, "because": str(lost or node.error)}
            with suppress(RevelatorError), self.recorder.record(below):  # a failed source is one that has no answer
                await self._ask_sources(below, others, query, retries - 1)
            if below.answers:
                own = {name: said for name, said in node.detail.items() if name in ("sources", "selection", "fallback")}
                copy_answer(node, below, "fallback")
                node.detail |= cast(Detail, own)
                return
        if lost:
            raise lost

    async def _find_answer(self, node: Node, sources: Sources, query: str | None, retries: int) -> None:
        """Asks the sources, and then, where no others are left and the deployment allows it, what the language model
        knows. A logical `query` finds the texts."""
        await answer_from_sources(self.models, sources, node, self.limits, self.recorder.report, query)
        if not _find_others(node, sources, retries):
            await self._ask_own_knowledge(node)

    async def _run_or_fall_back(self, node: Node, work: Query | Sequence[Node]) -> None:
        """Runs an operator, or answers from what the children answered. Where that gives no answer, retrieval with the
        question itself does, as a node below; an operator that is a leaf has no question but its arguments."""
        failure: Exception | None = None
        try:
            if isinstance(work, Query):
                await run_operator(self.models, self.sources, node, work, self.limits)
            else:
                answer_from_children(node, work)
        except Exception as error:
            failure, node.answers = error, []
            node.fail(error)
        if node.answers or "none" in node.detail:
            return
        if read_call(node.question):
            await self._ask_own_knowledge(node)
        else:
            below = self.recorder.open("atomic", node.question, parent=node.id, id=f"{node.id}.1")
            below.asked, below.detail["fallback"] = node.asked, "asked as it stands"
            node.detail["fallback"] = {"node": below.id, "because": node.error}
            with self.recorder.record(below):
                direct = build_direct_query(node.asked or node.question, node.question)
                await run_operator(self.models, self.sources, below, direct, self.limits)
                await self._ask_own_knowledge(below)
            if below.answers:
                node.answers, node.sentence = list(below.answers), below.sentence
                node.end_well()
                failure = None
        if failure:
            raise failure

    async def _ask_own_knowledge(self, node: Node) -> None:
        """Asks a language model what nothing answers, where the deployment allows it."""
        if self.writing.own_knowledge and node.status == "unanswered":
            await answer_from_own_knowledge(self.models, node)

    def answer(self, answers: Sequence[str]) -> None:
        """Makes these the answers of the question."""
        self.recorder.trace.answers = list(answers)
        self.recorder.trace.answer = ", ".join(answers)

    def degrade(self, reason: str) -> None:
        """Says in the trace that a fallback answered, and why."""
        self.recorder.trace.degraded = True
        self.recorder.trace.reason = reason


def _find_others(node: Node, sources: Sources, retries: int) -> Sources | None:
    """The sources that a leaf may still be put to; None where all of them were asked."""
    return sources.pass_over([report["source"] for report in node.detail.get("sources", ())]) if retries else None
