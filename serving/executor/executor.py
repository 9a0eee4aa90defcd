"""The executor: one question in, one trace out; many questions at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from revelator.errors import DeadlineExceeded, InvalidRequest
from revelator.limits import STRATEGIES, Limits, Strategy
from revelator.plans.language import BNF, PlanLanguage, find_language
from revelator.tasks import Step
from revelator.trace import Event, Node, Trace
from serving.executor import routes
from serving.executor.conversation import read_in_conversation
from serving.executor.evidence import Models, find_reusable_nodes
from serving.executor.judges import RevelatorJudge
from serving.executor.leaf_cache import LeafCache
from serving.executor.merging import write_text
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.executor.source_answers import search_sources
from serving.knowledge.operators import build_direct_query
from serving.knowledge.sources import Sources
from serving.latency import offload
from serving.protocols import PUBLIC, Generator, Judge, Revelator, Scope, Writing
from serving.retrieval.filters import parse_filter

ROUTES: dict[str, Callable[[QuestionRun], Awaitable[None]]] = {  # any other is answered by a plan
    "straightforward": routes.answer_straightforward,
    "direct": routes.answer_direct,
    "single": routes.answer_single,
    "compound": routes.answer_compound,
    "iterate": routes.answer_by_loop,
}

STYLE_CHARACTERS = 2_000  # of what is read of a style


@dataclass(eq=False)
class Executor:
    """Answers questions with a revelator, sources of knowledge and a generator.

    Of earlier questions it remembers whether a service is down, and with a `cache` what leaves were answered. Every
    other leaf and every operator of a tree asks the `sources`. The `judge` judges documents; where none is given, the
    revelator does. `routes_by_plan`: a plan of the revelator is its route, too, and it is asked for no other. `writing`
    says what a language model writes. `on_finish` is called with each finished trace. `turn` is entered around the work
    on a question; the wait for it is part of the question's time.
    """

    revelator: Revelator
    sources: Sources
    generator: Generator
    limits: Limits = field(default_factory=Limits)
    _: KW_ONLY
    judge: Judge | None = None
    writing: Writing = field(default_factory=Writing)
    on_finish: Callable[[Trace], object] = lambda trace: None
    turn: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    cache: LeafCache | None = None
    routes_by_plan: bool = False
    names_parts: bool = True  # what a question calls the parts of a comparison names its answer: `labels`

    def __post_init__(self) -> None:
        self.models = Models(self.revelator, self.generator, self.judge or RevelatorJudge(self.revelator))

    async def run(
        self,
        question: str,
        *,
        plan: str | None = None,
        strategy: Strategy = "auto",
        deadline_ms: float | None = None,
        limits: Limits | None = None,
        reuse: Trace | None = None,
        history: Sequence[Step] | None = None,
        style: str = "",
        fresh: bool = False,
        scope: Scope = PUBLIC,
        listener: Callable[[Event], None] | None = None,
    ) -> Trace:
        """Answers one question and returns its trace.

        `plan`: one to run instead of the model's own, in the language of the strategy (`find_language`). `strategy`:
        "auto" asks the revelator for the route. `deadline_ms` bounds the question end to end, up to
        the limit of the same name. `limits` replace the executor's own. `reuse`: an earlier trace; a leaf that asks,
        after substitution, what a leaf there was asked and answered takes over its documents and answers. `history`:
        what was asked and answered before in the conversation, the earliest first; none for its first message, and None
        where there is no conversation. `style`: in which language and tone the answer's text is to be written; it
        changes nothing else. `fresh`: no leaf is answered from the cache. `scope`: which documents every leaf is asked
        of; of a trace with another filter nothing is reused. `listener` gets each event as it happens, the
        last is `finished`; `revelator.trace.replay` makes the trace of them.

        What fails inside is in the trace: outcome "partial", "unanswered" or "failed". Cancelling it cancels every call
        under way.
        Raises ExpressionError and PlanError for a plan that cannot be run, InvalidRequest, Unavailable when nothing
        could be answered because a service is down, and DeadlineExceeded when time ran out before a leaf had an answer.
        """
        limits = limits or self.limits
        limits.check_question(question)
        limits.check_size(plan)
        self._check_options(strategy, deadline_ms)
        run, given, sources = None, None, self.sources.within(scope)
        parse_filter(scope.where)
        if reuse and reuse.where != scope.where:
            reuse = None
        deadline = min(deadline_ms or limits.deadline_ms, limits.deadline_ms)
        try:
            async with asyncio.timeout(deadline / 1000) as timer:
                if plan is not None:
                    given = await _read_plan(plan, find_language(strategy), limits)
                if scope.where:
                    async with self.turn():  # a filter is refused before the first event
                        await sources.require_fields()
                run = QuestionRun(
                    question,
                    self.models,
                    sources,
                    limits,
                    Recorder(question, strategy, listener, scope.where),
                    given_plan=given,
                    earlier_nodes=find_reusable_nodes(reuse) if reuse else {},
                    writing=self.writing,
                    style=style[:STYLE_CHARACTERS],
                    cache=None if fresh else self.cache,
                    names_parts=self.names_parts,
                )
                async with self.turn():
                    has_conversation = bool(history) or (history is not None and self.writing.reads_messages)
                    if plan is not None or not has_conversation or await read_in_conversation(run, history or ()):
                        await _take_route(run, strategy, self.routes_by_plan)
                        if self.writing.text:
                            await write_text(run)
        except TimeoutError:
            if not timer.expired():
                raise
            if run is None or not run.recorder.trace.answers:  # else its text alone is missing
                run = await _answer_at_deadline(run, deadline, limits.deadline_ms)
        trace = run.recorder.finish()
        self.on_finish(trace)
        return trace

    async def plan(self, question: str, language: PlanLanguage = BNF) -> Trace:
        """The plan that the revelator writes of a question, in a trace of which nothing was asked. Whoever calls it
        bounds its time. Raises InvalidRequest for a question that is empty or too long, and PlanError where the
        revelator writes no plan that can be run."""
        self.limits.check_question(question)
        run = QuestionRun(question, self.models, self.sources, self.limits, Recorder(question, language.strategy))
        await routes.write_plan(run, language)
        return run.recorder.trace

    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> Node:
        """The passages of a scope that the sources find for words or a logical query, as documents of a node that
        nobody judges or reads. Raises InvalidRequest, and what `search_sources` raises."""
        self.limits.check_question(query)
        node, sources = Node("1", "atomic", query), self.sources.within(scope)
        await sources.require_fields()
        await search_sources(sources, node, build_direct_query(query), k)
        return node

    def _check_options(self, strategy: str, deadline_ms: float | None) -> None:
        """Raises InvalidRequest for a strategy that is unknown, and for a deadline that is none."""
        if strategy not in STRATEGIES:
            raise InvalidRequest(f"there is no strategy {strategy!r:.60}", hint=f"one of {', '.join(STRATEGIES)}")
        if deadline_ms is not None and not (isinstance(deadline_ms, int | float) and deadline_ms > 0):
            message = f"deadline_ms must be a positive number of milliseconds, not {deadline_ms!r:.60}"
            raise InvalidRequest(message, hint="leave it out for the service's own deadline")


async def _read_plan(text: str, language: PlanLanguage, limits: Limits) -> Any:
    """Reads a caller's plan. Raises ExpressionError (syntax) or PlanError (diagnostics, or a limit that it exceeds)."""

    def read() -> Any:
        plan = language.parse(text)
        routes.require_runnable(language, plan, limits)
        routes.refuse(language.find_refusals(plan))
        return plan

    return await offload(len(text), read)


async def _take_route(run: QuestionRun, strategy: str, by_plan: bool) -> None:
    is_given, is_auto = run.given_plan is not None, strategy == "auto"
    if not is_given and not is_auto:
        run.route = strategy
    elif not is_given and not by_plan:
        run.route = await routes.choose_route(run)
    await ROUTES.get(run.route, partial(routes.answer_by_plan, language=find_language(strategy)))(run)
    if not is_given and is_auto:
        run.recorder.trace.route = run.route


async def _answer_at_deadline(run: QuestionRun | None, deadline_ms: float, limit_ms: float) -> QuestionRun:
    """Answers a question whose time ran out from what has been found. Raises DeadlineExceeded where that is nothing."""
    if run is None or not any(node.answers for node in run.recorder.nodes() if node.kind == "atomic"):
        raise DeadlineExceeded(
            f"no part of the question was answered within {deadline_ms:g} ms, its deadline",
            hint="allow more time (the client's timeout or deadline_ms; here at most "
            f"{limit_ms:g}: `limits: {{deadline_ms: N}}` in serving.yaml raises it) or ask a simpler question",
        )
    run.recorder.trace.deadline_exceeded = True
    if run.plan is not None:
        run.answer(run.plan.list_answers())
    return run


async def relay_events(
    work: Callable[[Callable[[Event], None]], Coroutine[Any, Any, object]],
) -> AsyncGenerator[Event, None]:
    """Does work that tells a listener its events, and yields them as they happen. Raises what the work raises; closing
    the generator cancels it."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(work(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])
