"""Questions of any source are annotated by an endpoint, and become an instruction set.

A question gets its route, its plan or parts, and, where there are passages, its steps: the questions of the plan, each
answered from the passages. The last answer must be the known one, where there is one, and what the supporting facts say
of a passage is never overruled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from data_gen.annotate.validation import check_coverage, check_plan, check_query, check_tree, share_answer
from data_gen.questions import (
    QUESTIONS,
    AnnotatedPassage,
    AnnotatedQuestion,
    AnnotatedStep,
    DroppedError,
    write_questions,
)
from data_gen.sources.formats import read_questions
from data_gen.teacher import replies
from data_gen.teacher.chats import Asker, Decision
from data_gen.teacher.client import Client
from data_gen.teacher.config import TeachConfig
from data_gen.teacher.replies import Check, check_hops
from data_gen.teacher.work import Progress, Work, build_set, open_work
from revelator.cluster import Engine, work_here
from revelator.fingerprints import normalise
from revelator.plans import Atomic, Expression, Operation, Sequence, bind, list_steps, parse, render, substitute
from revelator.tasks import (
    TASKS,
    TRANSLATE_ART,
    TRANSLATE_BNF,
    TRANSLATE_LOGIC,
    QuestionInput,
    RelevanceInput,
    Task,
)
from revelator.trace import join_answers


class Annotator:
    """Annotates questions by asking an endpoint."""

    def __init__(self, client: Client, config: TeachConfig) -> None:
        self.config = config
        self.asker = Asker(client, config.sampling)

    async def annotate(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        """Raises DroppedError with the reason why the question is not kept."""
        bare = replace(question, expression="", parts=(), steps=(), ending="", query="", tree="", agreement={})
        bare = replace(bare, teacher=f"endpoint:{self.config.endpoint.model}")
        route, agreement = self.config.route, {}
        if not route:
            decision = await self._ask_label("route", QuestionInput(bare.question))
            route, agreement["route"] = decision.value, decision.agreement
        bare = replace(bare, route=route, agreement=agreement)
        planned = await self._plan(bare)
        judged = await self._judge_passages(planned)
        return await self._add_steps(judged, question)

    async def _ask_label(self, task: str, given: Any) -> Decision:
        return await self.asker.ask_task(task, given, partial(replies.read_label, task))

    async def _plan(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        """The question with its parts and with a plan in each language that is taught."""
        coverage = partial(check_coverage, self.config.entity_coverage)
        if question.route == "single":
            question = replace(question, expression=render(Atomic(question.question)))
        if question.route == "complex":
            question = await self._translate(TRANSLATE_BNF, question, check_plan, check_hops, coverage)
        if question.route == "compound":
            question = await self._decompose(question)
        question = await self._translate(TRANSLATE_LOGIC, question, check_query)
        if question.route != "straightforward":
            question = await self._translate(TRANSLATE_ART, question, check_tree)
        return question

    async def _translate(self, task: Task, question: AnnotatedQuestion, *checks: Check) -> AnnotatedQuestion:
        """The question with a plan that passes the checks, if the task is taught."""
        language = task.language
        if language is None or task.name not in self.config.tasks:
            return question
        read = partial(replies.read_plan, language, question, checks)
        made = await self.asker.ask_task(task.name, QuestionInput(question.question), read, language.shape)
        agreement = {**question.agreement, task.name: made.agreement}
        return replace(question.replace_plan(language, made.value), agreement=agreement)

    async def _decompose(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        read = partial(replies.read_parts, question, self.config.entity_coverage)
        made = await self.asker.ask_task("decompose", QuestionInput(question.question), read)
        agreement = {**question.agreement, "decompose": made.agreement}
        expression = render(Sequence(tuple(Atomic(part) for part in made.value)))
        return replace(question, parts=tuple(made.value), expression=expression, agreement=agreement)

    async def _judge_passages(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        """The question with its first passages judged; those that the supporting facts judge otherwise are left out."""
        shown = question.passages[: self.config.passages]
        if "relevance" not in self.config.tasks or question.route == "straightforward":
            shown = ()
        supported = any(passage.relevant for passage in question.passages)
        found = await asyncio.gather(*(self._judge(question, p, supported) for p in shown))
        kept = [pair for pair in found if pair is not None]
        shares = [decision.agreement for _, decision in kept]
        agreement = {**question.agreement, "relevance": sum(shares) / len(shares)} if shares else question.agreement
        return replace(question, passages=tuple(passage for passage, _ in kept), agreement=agreement)

    async def _judge(
        self, question: AnnotatedQuestion, passage: AnnotatedPassage, supported: bool
    ) -> tuple[AnnotatedPassage, Decision] | None:
        given = RelevanceInput(question.question, passage.title, passage.text)
        try:
            judged = await self._ask_label("relevance", given)
        except DroppedError:
            return None
        relevant = judged.value == "yes"
        if supported and relevant != passage.relevant:
            return None
        return replace(passage, relevant=relevant), judged

    async def _add_steps(self, question: AnnotatedQuestion, source: AnnotatedQuestion) -> AnnotatedQuestion:
        documents = source.passages
        if not documents or not question.expression:
            return question
        steps = await self._run_plan(parse(question.expression), documents)
        if question.route == "compound":
            return replace(question, steps=steps, answers=tuple(answer for step in steps for answer in step.answers))
        # else its answer is compared or counted
        ends_in_one_leaf = not isinstance(parse(question.expression), Sequence | Operation)
        if source.answers and ends_in_one_leaf and not share_answer(steps[-1].answers, source.answers):
            raise DroppedError("the steps do not reach the known answer")
        answers = source.answers or steps[-1].answers
        return replace(question, steps=steps, passages=_join_passages(question, steps, documents), answers=answers)

    async def _run_plan(
        self, expression: Expression, documents: tuple[AnnotatedPassage, ...]
    ) -> tuple[AnnotatedStep, ...]:
        """Every leaf asked with the answers of those that it is bound to, in order. Raises DroppedError for a plan that
        goes on from an operation: nobody computes it here."""
        steps: list[AnnotatedStep] = []
        *before, _ = written = list_steps(expression)
        if any(isinstance(step, Operation) for step in before):
            raise DroppedError("a plan that goes on from an operation")
        for leaf, sources in zip(written, bind(expression).sources, strict=True):
            if isinstance(leaf, Operation):
                break
            known = {name: join_answers(steps[source].answers) for name, source in sources.items()}
            steps.append(await self._answer(substitute(leaf.text, known), documents))
        return tuple(steps)

    async def _answer(self, asked: str, documents: tuple[AnnotatedPassage, ...]) -> AnnotatedStep:
        shown = [{"title": document.title, "text": document.text} for document in documents]
        data = {"question": asked, "documents": shown}
        found = (await self.asker.ask("answer", data, partial(replies.read_answers, documents))).value
        said = f" {normalise(found[0])} "
        pages = [d for d in documents if d.relevant] or documents  # where the source tells, the supporting ones
        return AnnotatedStep(asked, found, next((d.title for d in pages if said in f" {normalise(d.text)} "), ""))


def _join_passages(
    question: AnnotatedQuestion, steps: tuple[AnnotatedStep, ...], documents: tuple[AnnotatedPassage, ...]
) -> tuple[AnnotatedPassage, ...]:
    """The judged passages, and the pages that the steps are read from, which are relevant."""
    pages = {step.title for step in steps}
    judged = {p.title for p in question.passages}
    own = [replace(p, relevant=p.relevant or p.title in pages) for p in question.passages]
    return (*own, *(replace(d, relevant=True) for d in documents if d.title in pages - judged))


def teach(
    config: TeachConfig, out: Path, progress: Progress, engine: Engine = work_here
) -> tuple[dict[str, Any], Work]:
    """Asks the endpoint about every question, in the folder `out`, and builds the set there; its manifest. The
    `engine` prepares the set: asking is waiting for the endpoint, within one budget, which this process does.

    Held-out questions, and those met before, are never sent. Raises Unavailable or ServingError when the endpoint
    fails for good: the answers so far are kept. A budget that is spent ends the asking, and the set is what was done.
    """
    with open_work(out, config, progress) as work:
        asyncio.run(_annotate(config, out, work))
        untaught = {name: {"share": 0.0} for name in TASKS if name not in config.tasks}
        manifest = build_set(out, config, work, engine, tasks=untaught, split=config.split.model_dump())
    return manifest, work


async def _annotate(config: TeachConfig, out: Path, work: Work) -> None:
    annotator = Annotator(work.client, config)
    with write_questions(out / QUESTIONS) as write:
        questions = read_questions(config.sources, config.held_out, work.dropped)
        async for annotated in work.make_each(questions, annotator.annotate):
            if annotated is not None:
                work.kept += 1
                write(annotated)
    await work.client.close()


def count_questions(config: TeachConfig) -> int | None:
    """How many questions will be asked about: what a first reading of the sources gives, where that fetches nothing."""
    if any("://" in source.path for source in config.sources):
        return None
    return sum(1 for _ in read_questions(config.sources, config.held_out, Counter()))
