"""Questions of any source are annotated by an endpoint, and become an instruction set.

A question gets its route, its plan or parts, and, where there are passages, its steps. With a plan, or parts, the steps
are their questions, filled in and answered from the passages. Without one (when `translate_bnf` is not among the tasks)
`refine`, `answer` and `end` write a chain. Either way the last answer must be the known one, where there is one, and
what the supporting facts say of a passage is never overruled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from data_gen.annotate.validation import share_answer
from data_gen.config import TaskConfig
from data_gen.leakage import Admission, normalise
from data_gen.questions import AnnotatedQuestion, AnnotatedStep, Evidence, write_questions
from data_gen.sources.formats import READERS
from data_gen.sources.rows import count_outcome
from data_gen.teacher import replies
from data_gen.teacher.chats import Prompts, task_data
from data_gen.teacher.client import Client
from data_gen.teacher.config import TeachConfig
from data_gen.teacher.replies import Decision, DroppedError, agreement_key, decide, list_operators
from data_gen.teacher.work import QUESTIONS, Progress, Work, build_set, open_work
from revelator.plans import Atomic, Expression, Sequence, bind, leaves, parse, render, substitute
from revelator.tasks import TASKS, EndInput, RefineInput, RelevanceInput, RouteInput, Step, TranslateInput
from revelator.trace import join_answers


@dataclass(frozen=True)
class Teaching:
    """What every call needs."""

    client: Client
    prompts: Prompts
    config: TeachConfig

    @property
    def name(self) -> str:
        """What records carry as their teacher."""
        return f"endpoint:{self.config.endpoint.model}"

    async def ask(
        self,
        prompt: str,
        data: dict[str, Any],
        read: Callable[[str], Any],
        key: Callable[[Any], Hashable] = agreement_key,
    ) -> Decision:
        """Raises DroppedError, its reason behind the name of the prompt."""
        try:
            return await decide(self.client, self.prompts.chat(prompt, data), self.config.sampling, read, key)
        except DroppedError as error:
            raise DroppedError(f"{prompt}: {error.message}") from error

    async def annotate(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        """Raises DroppedError with the reason why the question is not kept."""
        bare = replace(question, expression="", parts=(), steps=(), operation="", query="", tree="", agreement={})
        bare = replace(bare, teacher=self.name)
        route, agreement = self.config.route, {}
        if not route:
            decision = await self.ask("route", task_data(RouteInput(bare.question)), replies.expect_label("route"))
            route, agreement["route"] = decision.value, decision.agreement
        bare = replace(bare, route=route, agreement=agreement)
        planned = await self._written(await self._planned(bare))
        judged = await self._judged(planned)
        return await self._stepped(judged, question)

    async def _planned(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        coverage, tasks = self.config.entity_coverage, self.config.tasks
        asked = task_data(TranslateInput(question.question))
        if question.route == "single":
            return replace(question, expression=render(Atomic(question.question)))
        if question.route == "complex" and "translate_bnf" in tasks:
            plan = await self.ask("translate_bnf", asked, replies.expect_plan(question, coverage))
            agreement = {**question.agreement, "translate_bnf": plan.agreement}
            return replace(question, expression=render(plan.value), agreement=agreement)
        if question.route == "compound":
            parts = await self.ask("decompose", asked, replies.expect_parts(question, coverage))
            agreement = {**question.agreement, "decompose": parts.agreement}
            expression = render(Sequence(tuple(Atomic(part) for part in parts.value)))
            return replace(question, parts=tuple(parts.value), expression=expression, agreement=agreement)
        return question

    async def _written(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        """The question with its logical query, and with its tree, as far as these are taught."""
        for task, field in (("translate_logic", "query"), ("translate_art", "tree")):
            if task in self.config.tasks and (field == "query" or question.route != "straightforward"):
                asked, read = task_data(TranslateInput(question.question)), replies.expect_written(task, question)
                made = await self.ask(task, asked, read, list_operators)
                agreement = {**question.agreement, task: made.agreement}
                question = replace(question, **{field: made.value}, agreement=agreement)
        return question

    async def _judged(self, question: AnnotatedQuestion) -> AnnotatedQuestion:
        """The question with its first passages judged; those that the supporting facts judge otherwise are left out."""
        shown = question.passages[: self.config.passages]
        if "relevance" not in self.config.tasks or question.route == "straightforward":
            shown = ()
        supported = any(passage.relevant for passage in question.passages)
        found = await asyncio.gather(*(self._relevance(question, p, supported) for p in shown))
        kept = [pair for pair in found if pair is not None]
        shares = [decision.agreement for _, decision in kept]
        agreement = {**question.agreement, "relevance": sum(shares) / len(shares)} if shares else question.agreement
        return replace(question, passages=tuple(passage for passage, _ in kept), agreement=agreement)

    async def _relevance(
        self, question: AnnotatedQuestion, passage: Evidence, supported: bool
    ) -> tuple[Evidence, Decision] | None:
        data = task_data(RelevanceInput(question.question, passage.title, passage.text))
        try:
            judged = await self.ask("relevance", data, replies.expect_label("relevance"))
        except DroppedError:
            return None
        relevant = judged.value == "yes"
        if supported and relevant != passage.relevant:
            return None
        return replace(passage, relevant=relevant), judged

    async def _stepped(self, question: AnnotatedQuestion, source: AnnotatedQuestion) -> AnnotatedQuestion:
        if not source.passages or question.route == "straightforward":
            return question
        documents = source.passages
        if question.expression:
            steps = await self._executed(parse(question.expression), documents)
        elif "refine" in self.config.tasks:
            question, steps = await self._chained(question, documents)
        else:
            return question
        if question.route == "compound":
            return replace(question, steps=steps, answers=tuple(answer for step in steps for answer in step.answers))
        if source.answers and not share_answer(steps[-1].answers, source.answers) and not _compares(question):
            raise DroppedError("the steps do not reach the known answer")
        answers = source.answers or steps[-1].answers
        return replace(question, steps=steps, passages=_join_passages(question, steps, documents), answers=answers)

    async def _executed(self, expression: Expression, documents: tuple[Evidence, ...]) -> tuple[AnnotatedStep, ...]:
        """Every leaf asked with the answers of those that it is bound to, in order."""
        steps: list[AnnotatedStep] = []
        for leaf, sources in zip(leaves(expression), bind(expression).sources, strict=True):
            known = {name: join_answers(steps[source].answers) for name, source in sources.items()}
            steps.append(await self._answered(substitute(leaf.text, known), documents))
        return tuple(steps)

    async def _chained(
        self, question: AnnotatedQuestion, documents: tuple[Evidence, ...]
    ) -> tuple[AnnotatedQuestion, tuple[AnnotatedStep, ...]]:
        steps: list[AnnotatedStep] = []
        shares: dict[str, list[float]] = {"refine": [], "end": []}
        while len(steps) < self.config.steps:
            known = tuple(Step(step.question, step.answers) for step in steps)
            data = task_data(RefineInput(question.question, known))
            asked = await self.ask("refine", data, replies.expect_next_question(steps))
            steps.append(await self._answered(asked.value, documents))
            known = (*known, Step(steps[-1].question, steps[-1].answers))
            end = await self.ask("end", task_data(EndInput(question.question, known)), replies.expect_label("end"))
            shares["refine"].append(asked.agreement)
            shares["end"].append(end.agreement)
            if end.value == "yes":
                agreement = {task: sum(own) / len(own) for task, own in shares.items()}
                return replace(question, agreement={**question.agreement, **agreement}), tuple(steps)
        raise DroppedError(f"end: no end after {self.config.steps} steps")

    async def _answered(self, asked: str, documents: tuple[Evidence, ...]) -> AnnotatedStep:
        shown = [{"title": document.title, "text": document.text} for document in documents]
        data = {"question": asked, "documents": shown}
        found = (await self.ask("answer", data, replies.expect_answers(documents))).value
        said = f" {normalise(found[0])} "
        pages = [d for d in documents if d.relevant] or documents  # where the source tells, the supporting ones
        return AnnotatedStep(asked, found, next((d.title for d in pages if said in f" {normalise(d.text)} "), ""))


def _join_passages(
    question: AnnotatedQuestion, steps: tuple[AnnotatedStep, ...], documents: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    """The judged passages, and the pages that the steps are read from, which are relevant."""
    pages = {step.title for step in steps}
    judged = {p.title for p in question.passages}
    own = [replace(p, relevant=p.relevant or p.title in pages) for p in question.passages]
    return (*own, *(replace(d, relevant=True) for d in documents if d.title in pages - judged))


def _compares(question: AnnotatedQuestion) -> bool:
    """A plan that does not end in one leaf: its answer is compared or counted out of several."""
    return isinstance(parse(question.expression), Sequence) if question.expression else False


def teach(config: TeachConfig, out: Path, progress: Progress) -> tuple[dict[str, Any], Work]:
    """Asks the endpoint about every question, in the folder `out`, and builds the set there; its manifest.

    Held-out questions, and those met before, are never sent. Raises Unavailable or ServingError when the endpoint
    fails for good: the answers so far are kept. A budget that is spent ends the asking, and the set is what was done.
    """
    with open_work(out, config, progress) as work:
        asyncio.run(_annotate(config, out, work))
        untaught = {name: TaskConfig(share=0) for name in TASKS if name not in config.tasks}
        bounds = {name: bound.model_dump() for name, bound in {**config.records, **untaught}.items()}
        manifest = build_set(out, config, work, tasks=bounds, split=config.split.model_dump())
    return manifest, work


async def _annotate(config: TeachConfig, out: Path, work: Work) -> None:
    teaching = Teaching(work.client, Prompts(config.examples, config.seed), config)
    with write_questions(out / QUESTIONS) as write:
        async for annotated in work.each(read_questions(config, work.dropped), teaching.annotate):
            if annotated is not None:
                work.kept += 1
                write(annotated)
    await work.client.close()


def count_questions(config: TeachConfig) -> int | None:
    """How many questions will be asked about: what a first reading of the sources gives, where that fetches nothing."""
    if any("://" in source.path for source in config.sources):
        return None
    return sum(1 for _ in read_questions(config, Counter()))


def read_questions(config: TeachConfig, dropped: Counter[str]) -> Iterator[AnnotatedQuestion]:
    """Each question of the sources once, under the name and licence of its source."""
    admission = Admission(config.held_out)
    for source in config.sources:
        for outcome in islice(READERS[source.format](source.path), source.limit):
            if not isinstance(outcome, AnnotatedQuestion):
                count_outcome(outcome, dropped)
                continue
            name, licence = source.name or outcome.source, source.licence or outcome.licence
            question = replace(outcome, parts=(), source=name, licence=licence)
            if admission.admits(question, dropped):
                yield question
