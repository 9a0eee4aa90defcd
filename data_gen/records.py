"""From one annotated question to the records of the tasks.

route            the question → its route
decompose        a compound question → its parts; a single one → itself
refine           the question and each proper prefix of its steps → the next step; a single one → itself
rewrite          a message and what was asked before it → the question that it means (data_gen.augment.follow_ups)
relevance        a step's question (or the whole one) and a passage → yes or no, as many of each; and each passage that
                 a person judged
end              all steps → yes, proper prefixes → no, as many of each (HANRAG, section 3)
translate_bnf    the question → its plan (QCompiler, section 3); a single one → itself
translate_logic  the question → its logical query, where it has one (ITLR)
translate_art    the question → its tree of atomic operators, where it has one (AtomR, section 3.2)
select           a step's question and one of the question's sources → yes or no, as many of each
read             the question and passages → what they answer (data_gen.read_examples)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from random import Random
from typing import Any, TypeVar

from data_gen.annotate.endings import end_plan
from data_gen.annotate.names import find_mention, find_planned_names
from data_gen.annotate.trees import cut_step_tree
from data_gen.augment.follow_ups import list_follow_ups
from data_gen.config import SetConfig
from data_gen.questions import AnnotatedQuestion, AnnotatedStep, DroppedError
from data_gen.read_examples import list_readings
from revelator import plans
from revelator.files import sha256_text
from revelator.plans.language import BNF
from revelator.rows import Row
from revelator.tasks import (
    TASKS,
    TRANSLATE_ART,
    TRANSLATE_BNF,
    TRANSLATE_LOGIC,
    QuestionInput,
    RelevanceInput,
    SelectInput,
    Step,
    StepsInput,
    Task,
)
from revelator.trace import join_answers

T = TypeVar("T")
PLACEHOLDER = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class Example:
    """A task's typed input and gold value; `key` tells examples of one question and task apart."""

    key: str
    input: Any
    gold: Any


def make_records(
    question: AnnotatedQuestion, config: SetConfig, group: str, tasks: Iterable[str] = TASKS
) -> Iterator[Row]:
    """All records of a question for `tasks`, under the configuration's bounds.

    `group` is the question that it came from. A question whose ending no plan says teaches none.
    """
    if question.expression:
        try:
            question = question.replace_plan(BNF, end_plan(plans.parse(question.expression), question.ending))
        except DroppedError:
            question = replace(question, expression="")
    letters = plans.to_letters(plans.parse(question.expression)) if question.expression else ""
    names = json.dumps(find_planned_names(question), ensure_ascii=False)
    for task in (TASKS[name] for name in tasks if not question.tasks or name in question.tasks):
        bounds = config.task(task.name)
        for example in make_examples(question, task.name, config.seed)[: bounds.per_question]:
            identity = f"{question.id}/{task.name}/{example.key}"
            if hash_fraction(f"share:{config.seed}:{identity}") < bounds.share:
                yield _make_record(question, task, example, identity, letters, names, group)


def _make_record(
    question: AnnotatedQuestion, task: Task, example: Example, identity: str, letters: str, names: str, group: str
) -> Row:
    gold = example.gold if isinstance(example.gold, str | list) else task.write(example.gold)
    agreement = question.agreement.get(task.name)
    return Row(
        id=identity,
        split=question.split,
        task=task.name,
        source=question.source,
        licence=question.licence,
        teacher=question.teacher,
        group=group,
        question=question.question,
        prompt=task.render(example.input),
        completion=task.write_completion(example.gold),
        prompt_hash=task.prompt_hash,
        label=example.gold if task.labels else "",
        shape=letters,
        gold=json.dumps(gold, ensure_ascii=False),
        entities=names if task.language else "",
        agreement="" if agreement is None else f"{agreement:.3f}",
    )


def make_examples(question: AnnotatedQuestion, task: str, seed: int) -> list[Example]:
    """Every example of one task; a bound on their number keeps the first."""
    return list(_MAKERS[task](question, seed))


def _make_routes(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    yield Example("0", QuestionInput(question.question), question.route)


def _make_decompositions(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    parts = {"compound": list(question.parts), "single": [question.question]}.get(question.route)
    if parts:
        yield Example("0", QuestionInput(question.question), parts)


def _make_refinements(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    if question.route == "single":
        yield Example("0", StepsInput(question.question), question.question)
    elif question.route == "complex":
        made = [
            Example(str(i), StepsInput(question.question, _as_known(question.steps[:i])), step.question)
            for i, step in enumerate(question.steps)
        ]
        yield from shuffle_by_hash(made, f"{seed}:{question.id}:refine", lambda example: example.key)


def _make_rewritings(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    """As many messages that leave a name out as there are that can be understood alone, in turns."""
    pairs: dict[str, list[Example]] = {"said": [], "alone": []}
    for key, message, before, meant in list_follow_ups(question, Random(f"{seed}:{question.id}:rewrite")):
        example = Example(key, StepsInput(message, _as_known(before)), meant)
        pairs["alone" if message == meant else "said"].append(example)
    shuffled = [shuffle_by_hash(made, f"{seed}:{question.id}:rewrite", lambda one: one.key) for made in pairs.values()]
    for turn in zip_longest(*shuffled):
        yield from filter(None, turn)


def _make_ends(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    """One yes and one no: the prefix that is not enough is drawn by hash."""
    steps = question.steps
    if question.route == "straightforward" or not steps:
        return
    yield Example("all", StepsInput(question.question, _as_known(steps)), "yes")
    short = int(hash_fraction(f"{seed}:{question.id}:end") * len(steps))
    yield Example(str(short), StepsInput(question.question, _as_known(steps[:short])), "no")


def _make_judgements(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    """What a person judged, then alternately yes and no. A step is asked about its own page and about pages that help
    with none of the steps.

    A complex or logical question is asked as a whole, too.
    """
    for number, passage in enumerate(question.passages):
        if passage.asked:
            shown = RelevanceInput(passage.asked, passage.title, passage.text)
            yield Example(f"judged.{number}", shown, "yes" if passage.relevant else "no")
    pairs: dict[str, list[Example]] = {"yes": [], "no": []}
    for step, number, shown, helps in pair_passages(question):
        label = "yes" if helps else "no"
        key = f"whole.{number}" if step is None else f"{step}.{number}"
        pairs[label].append(Example(key, shown, label))
    yield from _alternate(pairs, f"{seed}:{question.id}:relevance")


def pair_passages(question: AnnotatedQuestion) -> Iterator[tuple[int | None, int, RelevanceInput, bool]]:
    """The index of a step (None: the whole question), that of a passage, the two as asked, and whether it helps. A step
    has its own page and those that help with none; a step knows its page by the title. Passages that a person judged
    for one question are left out."""
    queries = [(i, step.question, {step.title}) for i, step in enumerate(question.steps) if step.title]
    whole = [(None, question.question, {p.title for p in question.passages if p.relevant})]
    for step, asked, titles in [*queries, *(whole if question.route == "complex" or question.query else [])]:
        for number, passage in enumerate(question.passages):
            helps = passage.relevant and passage.title in titles
            if not passage.asked and (helps or not passage.relevant):
                yield step, number, RelevanceInput(asked, passage.title, passage.text), helps


def _make_translations(task: Task, question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    assert task.language is not None
    if text := question.plan_text(task.language):
        yield Example("0", QuestionInput(question.question), task.language.parse(text))


def _make_bnf_translations(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    """A compound question without a plan has its parts side by side."""
    if not question.expression and question.route == "compound" and len(question.parts) > 1:
        plan = plans.Sequence(tuple(plans.Atomic(part) for part in question.parts))
        question = replace(question, expression=plans.render(plan))
    return _make_translations(TRANSLATE_BNF, question, seed)


def _make_selections(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    """Alternately yes and no. A step is asked as the plan has it and, as a loop asks it, with earlier answers in it."""
    pairs: dict[str, list[Example]] = {"yes": [], "no": []}
    for number, step in enumerate(question.steps):
        for place, asked in enumerate(dict.fromkeys([_find_leaf(question, step), step.question])):
            for source in question.sources if step.sources else ():
                shown = SelectInput(asked, source.name, source.kind, source.about)
                label = "yes" if source.name in step.sources else "no"
                pairs[label].append(Example(f"{number}.{place}.{source.name}", shown, label))
    yield from _alternate(pairs, f"{seed}:{question.id}:select")


def _make_readings(question: AnnotatedQuestion, seed: int) -> Iterator[Example]:
    for key, shown, answer in list_readings(question, Random(f"{seed}:{question.id}:read")):
        yield Example(key, shown, answer)


def _alternate(pairs: dict[str, list[Example]], seed: str) -> Iterator[Example]:
    """A yes and a no by turns, each drawn by hash, as many of each."""
    drawn = [shuffle_by_hash(pairs[label], seed, lambda example: example.key) for label in ("yes", "no")]
    for examples in zip(*drawn, strict=False):
        yield from examples


def _find_leaf(question: AnnotatedQuestion, step: AnnotatedStep) -> str:
    """The leaf of the plan that a step fills in; the step's question where the plan has none."""
    leaves = plans.list_leaves(plans.parse(question.expression)) if question.expression else []
    for leaf in leaves:
        pattern = ".+".join(map(re.escape, PLACEHOLDER.split(leaf.text)))
        if re.fullmatch(pattern, step.question):
            return leaf.text
    return step.question


_MAKERS: dict[str, Callable[[AnnotatedQuestion, int], Iterator[Example]]] = {
    "route": _make_routes,
    "decompose": _make_decompositions,
    "refine": _make_refinements,
    "rewrite": _make_rewritings,
    "relevance": _make_judgements,
    "end": _make_ends,
    TRANSLATE_BNF.name: _make_bnf_translations,
    TRANSLATE_LOGIC.name: partial(_make_translations, TRANSLATE_LOGIC),
    TRANSLATE_ART.name: partial(_make_translations, TRANSLATE_ART),
    "select": _make_selections,
    "read": _make_readings,
}


def make_sub_questions(question: AnnotatedQuestion, count: int, seed: int) -> list[AnnotatedQuestion]:
    """Up to `count` steps of a complex question, each a single question of its own, drawn by hash."""
    if question.route != "complex":
        return []
    numbered = shuffle_by_hash(list(enumerate(question.steps)), f"{seed}:{question.id}:sub", lambda pair: str(pair[0]))
    return [_make_single(question, index, step) for index, step in numbered[:count]]


def _make_single(question: AnnotatedQuestion, index: int, step: AnnotatedStep) -> AnnotatedQuestion:
    answers = [join_answers(each.answers) for each in question.steps]  # as the questions of later steps hold them
    names = dict.fromkeys([*question.entities, *answers[:index]])
    return replace(
        question,
        id=f"{question.id}/step{index}",
        question=step.question,
        route="single",
        expression=plans.render(plans.Atomic(step.question)),
        steps=(step,),
        answers=step.answers,
        passages=tuple(p for p in question.passages if not p.asked and (not p.relevant or p.title == step.title)),
        entities=tuple(name for name in names if find_mention(name, step.question)),
        ending="",
        query="",
        tree=cut_step_tree(question.tree, index, answers, step.question),
    )


def _as_known(steps: Sequence[AnnotatedStep]) -> tuple[Step, ...]:
    return tuple(Step(step.question, step.answers) for step in steps)


def hash_fraction(key: str) -> float:
    """A number in [0, 1) that depends on `key` alone."""
    return int(sha256_text(key)[:13], 16) / 16**13


def shuffle_by_hash(items: Sequence[T], seed: str, key: Callable[[T], str]) -> list[T]:
    """`items` in an order that depends on `seed` and their keys alone."""
    return sorted(items, key=lambda item: sha256_text(f"{seed}:{key(item)}"))
