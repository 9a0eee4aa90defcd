"""The baselines: retrieval-augmented generation as other papers do it, each over our retriever and our generator.

Each says where it differs from its paper. None of them answers by code, in parallel, or behind a deadline of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from evaluation.baselines.steps import ask_generator, merge_steps, prompt_model, search, search_and_read, to_step
from evaluation.baselines.trajectories import run_rq_rag, run_self_rag
from revelator.errors import DeadlineExceeded, PlanError
from revelator.limits import Limits
from revelator.plans import Atomic, Expression, bind, check, list_leaves, list_steps, render, substitute
from revelator.plans.bnf import unbrace_placeholders
from revelator.plans.language import BNF
from revelator.trace import Passage, Trace, join_answers
from serving.executor import routes
from serving.executor.evidence import Models
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.knowledge.sources import Sources
from serving.protocols import GenerateRequest

FOLLOW_UP_PASSAGES = 3  # Self-Ask, of one follow-up question
FOLLOW_UP = re.compile(r"follow[- ]?up\s*:\s*(.+)", re.IGNORECASE)
THOUGHT_PASSAGES, MOST_PASSAGES = 4, 15  # IRCoT, of one search and in all
DONE = re.compile(r"\b(?:so )?the answer is\b", re.IGNORECASE)
ROUND_PASSAGES = 5  # Iter-RetGen, of one round
ROUNDS = 5  # as many as QCompiler gives it (appendix)


async def run_naive_rag(run: QuestionRun, k: int | None = None) -> None:
    """Naive RAG (Lewis et al. 2020, arXiv 2005.11401): one search with the whole question, one reading of `k` passages
    (`Limits.kept` if None).

    Differs: a search by our index and a reading by our generator, neither of them trained together.
    """
    node = await search_and_read(run, run.question, k or run.limits.kept)
    run.answer(node.answers)


async def run_self_ask(run: QuestionRun) -> None:
    """Self-Ask with search (Press et al. 2023, arXiv 2210.03350, section 3): the language model asks itself follow-up
    questions one at a time until it says that it can answer; each one is answered by one step of retrieval.

    Differs: in the paper a search engine answers a follow-up; here our generator reads the answer from the passages.
    """
    while len(run.steps) < run.limits.steps:
        text = await prompt_model(run, "self_ask", question=run.question, steps=[vars(s) for s in run.steps])
        said = FOLLOW_UP.search(text)
        asked = said[1].strip() if said else ""
        if not asked or asked in {s.question for s in run.steps}:
            break
        run.steps.append(to_step(await search_and_read(run, asked, FOLLOW_UP_PASSAGES)))
    if run.steps:
        node = await merge_steps(run, run.question, run.steps)
    else:
        node = await search_and_read(run, run.question, FOLLOW_UP_PASSAGES)
    run.answer(node.answers)


async def run_ircot(run: QuestionRun) -> None:
    """IRCoT (Trivedi et al. 2023, arXiv 2212.10509, section 3): retrieval and a chain of thought take turns. The first
    search is the question, each later one the newest sentence of the thought; the passages pile up, and a reader
    answers from all of them at the end.

    Differs: the prompt is ours and shows no worked examples of the benchmark.
    """
    passages: dict[tuple[str, str], Passage] = {}
    thoughts: list[str] = []
    query = run.question
    for _ in range(run.limits.steps):
        node = run.open("atomic", query)
        node.asked = query
        with run.recorder.record(node):
            await search(run, node, query, THOUGHT_PASSAGES)
        passages |= {(p.title, p.text): p for p in node.documents if len(passages) < MOST_PASSAGES}
        seen = [{"title": p.title, "text": p.text} for p in passages.values()]
        text = await prompt_model(run, "ircot", question=run.question, passages=seen, thoughts=thoughts)
        query = text.partition("\n")[0]
        if not query or query in thoughts:
            break
        thoughts.append(query)
        if DONE.search(query):
            break
    found = tuple(passages.values())[:MOST_PASSAGES]
    last = await ask_generator(run, "merge", run.question, GenerateRequest("read", run.question, found))
    run.answer(last.answers)


async def run_iter_retgen(run: QuestionRun) -> None:
    """Iter-RetGen (Shao et al. 2023, arXiv 2305.15294, section 3): the answer of one round is added to the question for
    the search of the next. Every round reads the whole question anew from what that search found.

    Differs: a round's answer is our generator's, not a chain of thought.
    """
    said = ""
    for _ in range(min(ROUNDS, run.limits.steps)):
        node = await search_and_read(run, run.question, ROUND_PASSAGES, query=f"{run.question} {said}".strip())
        run.answer(node.answers)
        before, said = said, node.sentence or join_answers(node.answers)
        if said == before:
            break  # the next search would be the same


async def run_adaptive_rag(run: QuestionRun) -> None:
    """Adaptive-RAG (Jeong et al. 2024, arXiv 2403.14403, section 3): a small classifier sends a question one of three
    ways, no retrieval, one step, or several steps, which are IRCoT.

    Differs: the classifier is the revelator's route, whose compound and complex questions both go the third way.
    """
    match await routes.choose_route(run):
        case "straightforward":
            await routes.answer_direct(run)
        case "single":
            await run_naive_rag(run, 5)
        case _:
            await run_ircot(run)


HANRAG_ROUTES: dict[str, Callable[[QuestionRun], Awaitable[None]]] = {
    "straightforward": routes.answer_direct,
    "single": routes.answer_single,
    "compound": partial(routes.answer_compound, operation="judge"),
}


async def run_hanrag(run: QuestionRun) -> None:
    """HANRAG (Sun et al. 2025, section 4): the same four routes and one-step reading as ours, but a complex question
    goes through the loop of refine, retrieve and end instead of a compiled plan. The generator merges the parts of a
    compound question, and a step without a relevant document reads nothing.

    Differs: its tasks are answered by the revelator, one small model with our prompts, where the paper fine-tunes a
    language model; the loop does not ask for its end before the first step, and ends at our limit of steps; documents
    that do not name what is asked about are not read.
    """
    run.limits = replace(run.limits, relevance_floor=run.limits.relevance_threshold)
    run.route = await routes.choose_route(run)
    await HANRAG_ROUTES.get(run.route, routes.answer_by_loop)(run)


async def run_qcompiler(run: QuestionRun) -> None:
    """QCompiler (Zhang et al. 2025, section 3.3): the compiled plan is processed by recursive descent, one leaf after
    the other, each reads one document (`Limits.kept`; figure 3 varies it), and the generator answers from all
    sub-questions and their answers. Of the samples at rising temperatures the first that the paper's own rules accept
    is taken (appendix D).

    Differs: plans are the revelator's, and must pass our check as well. Not here, as in the paper: our relevance
    judgement, parallel leaves, fan-out, operations by code.
    """

    def require(plan: Expression) -> None:
        run.limits.check_plan(plan)
        if faults := check(plan, rules="paper") or check(plan):
            raise PlanError(faults[0].message, diagnostics=faults)
        if len(list_leaves(plan)) < len(list_steps(plan)):
            raise PlanError("the paper's executor knows no operations")

    plan = await routes.translate(run, BNF, require=require)
    trace = run.recorder.trace
    trace.plan_source = "model" if plan else "fallback"
    plan = plan or Atomic(unbrace_placeholders(run.question))
    trace.plan = render(plan)
    answers: list[str] = []
    for leaf, sources in zip(list_leaves(plan), bind(plan).sources, strict=True):
        asked = substitute(leaf.text, {name: answers[producer] for name, producer in sources.items()})
        run.steps.append(to_step(await search_and_read(run, asked, run.limits.kept)))
        answers.append(run.steps[-1].answer)
    node = await merge_steps(run, run.question, [s for s in run.steps if s.answers]) if len(run.steps) > 1 else None
    run.answer(node.answers if node and node.answers else run.steps[-1].answers)


@dataclass(frozen=True)
class Baseline:
    """`answer` ends in `QuestionRun.answer`. `writes`: it prompts a language model for more than answers; `revelator`:
    it asks our model; `compiles`: its plans can be held against gold; `searches`: it needs an index; `kept`: documents
    that a leaf reads where the configuration does not say."""

    answer: Callable[[QuestionRun], Awaitable[None]]
    writes: bool = False
    revelator: bool = False
    compiles: bool = False
    searches: bool = True
    kept: int | None = None


BASELINES = {
    "direct": Baseline(routes.answer_direct, searches=False),  # closed book (Roberts et al. 2020)
    "naive": Baseline(run_naive_rag, kept=5),
    "naive-5": Baseline(partial(run_naive_rag, k=5)),
    "naive-10": Baseline(partial(run_naive_rag, k=10)),
    "self-ask": Baseline(run_self_ask, writes=True),
    "ircot": Baseline(run_ircot, writes=True),
    "iter-retgen": Baseline(run_iter_retgen),
    "self-rag": Baseline(run_self_rag, writes=True),
    "rq-rag": Baseline(partial(run_rq_rag, select="ensemble"), writes=True),
    "rq-rag-confidence": Baseline(partial(run_rq_rag, select="confidence"), writes=True),
    "rq-rag-perplexity": Baseline(partial(run_rq_rag, select="perplexity"), writes=True),
    "adaptive-rag": Baseline(run_adaptive_rag, writes=True, revelator=True),
    "hanrag": Baseline(run_hanrag, revelator=True),
    "qcompiler": Baseline(run_qcompiler, revelator=True, compiles=True, kept=1),
}


async def run_baseline(name: str, question: str, models: Models, sources: Sources, limits: Limits) -> Trace:
    """Answers one question with a baseline, under the executor's limits, and returns its trace. Raises what the
    executor raises."""
    limits.check_question(question)
    run = QuestionRun(question, models, sources, limits, Recorder(question, name))
    try:
        async with asyncio.timeout(limits.deadline_ms / 1000):
            await BASELINES[name].answer(run)
    except TimeoutError as error:
        message = f"no answer within {limits.deadline_ms:g} ms, the question's deadline"
        raise DeadlineExceeded(message, hint="allow more time: `limits: {deadline_ms: N}`") from error
    return run.recorder.finish()
