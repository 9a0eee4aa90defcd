"""The executor: one question in, one trace out; many questions at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, get_args

from revelator.errors import DeadlineExceeded, InvalidRequest
from revelator.language import Expression
from revelator.trace import Outcome, Trace
from serving.executor import routes
from serving.executor.anrag import Models
from serving.executor.limits import Limits
from serving.executor.merging import settle
from serving.executor.recording import Recorder
from serving.executor.run import Run
from serving.protocols import Generator, Retriever, Revelator

Strategy = Literal["auto", "direct", "single", "compound", "compile", "iterate"]

ROUTES: dict[str, Callable[[Run], Awaitable[None]]] = {
    "straightforward": routes.straightforward,
    "direct": routes.direct,
    "single": routes.single,
    "compound": routes.compound,
    "complex": routes.compile_plan,
    "compile": routes.compile_plan,
    "iterate": routes.iterate,
}


class Executor:
    """Answers questions with a revelator, a retriever and a generator. It keeps no state between questions."""

    def __init__(
        self, revelator: Revelator, retriever: Retriever, generator: Generator, limits: Limits | None = None
    ) -> None:
        self.models = Models(revelator, retriever, generator)
        self.limits = limits or Limits()

    async def run(
        self,
        question: str,
        *,
        plan: str | None = None,
        strategy: Strategy = "auto",
        deadline_ms: float | None = None,
        limits: Limits | None = None,
    ) -> Trace:
        """The trace of one question.

        `plan` is an expression to run instead of the model's own; `strategy` "auto" asks the revelator for the route;
        `deadline_ms` bounds the question end to end, up to the limit of the same name; `limits` stand in for the
        executor's own. What fails inside is in the trace: outcome "partial" or "failed". Raises ExpressionError and
        PlanError for a plan that cannot be run, InvalidRequest, Unavailable when nothing could be answered because a
        service is down, and DeadlineExceeded when time ran out before any leaf had an answer.
        """
        limits = limits or self.limits
        limits.check_question(question)
        if strategy not in get_args(Strategy):
            raise InvalidRequest(f"there is no strategy {strategy!r}", hint=f"one of {', '.join(get_args(Strategy))}")
        if deadline_ms is not None and not deadline_ms > 0:
            raise InvalidRequest(f"deadline_ms must be a positive number of milliseconds, not {deadline_ms!r}")
        run = Run(question, self.models, limits, Recorder(question, strategy))
        given = routes.read_plan(plan, limits) if plan is not None else None
        deadline = min(deadline_ms or limits.deadline_ms, limits.deadline_ms)
        try:
            async with asyncio.timeout(deadline / 1000) as scope:
                await _travel(run, given, strategy)
        except TimeoutError:
            if not scope.expired():
                raise
            _out_of_time(run, deadline)
        trace = run.recorder.finish()
        trace.outcome = _outcome(trace)
        return trace


async def _travel(run: Run, given: Expression | None, strategy: str) -> None:
    if given is not None:
        await routes.run_plan(run, given, "given")
        return
    run.kind = await routes.route(run) if strategy == "auto" else strategy
    await ROUTES[run.kind](run)


def _out_of_time(run: Run, deadline_ms: float) -> None:
    if not any(node.answers for node in run.recorder.nodes() if node.kind == "atomic"):
        raise DeadlineExceeded(
            f"no part of the question was answered within {deadline_ms:g} ms",
            hint="allow more time (deadline_ms) or ask a simpler question",
        )
    run.recorder.trace.deadline_exceeded = True
    settle(run)


def _outcome(trace: Trace) -> Outcome:
    """Complete when there is an answer and every leaf and merge gave its own; partial when any leaf did."""
    counted = [node for node in trace.nodes if node.kind in ("atomic", "merge")]
    if trace.answers and not trace.deadline_exceeded and all(node.status == "ok" for node in counted):
        return "complete"
    return "partial" if trace.answers or any(node.answers for node in counted) else "failed"
