"""The annotation teacher: gold decompositions become G[q] expressions in natural words. No model is asked.

A decomposition is a list of steps, some of which refer to earlier ones as `#n`. Its references give the shape of the
expression (`A * B`, `(A + B) * C`, …), its texts or relations the words, and each reference becomes the number of its
step, `{n}`, or `{n*}` where all its values are meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from data_gen.annotate import trees
from data_gen.annotate.names import find_mention, fold, introduce, recase
from data_gen.annotate.wording import ask, tidy
from data_gen.questions import AnnotatedStep, DroppedError
from revelator import plans
from revelator.plans.art import Art
from revelator.plans.operators import Call, Relate
from revelator.plans.steps import Computed, Tree, find_shape
from revelator.trace import join_answers

REFERENCE = re.compile(r"#(\d+)(s?)")  # `#n` is the value of step n, `#ns` all its values


@dataclass(frozen=True)
class GoldStep:
    """One step as annotated: a question in free words, or a relation and its subject; `#n` is step n, from 1."""

    text: str = ""
    subject: str = ""
    relation: str = ""
    answers: tuple[str, ...] = ()  # none where the source tells none
    title: str = ""

    @property
    def references(self) -> tuple[int, ...]:
        """Indices (from 0) of the steps referred to, in order of first use."""
        found = (int(number) - 1 for number, _ in REFERENCE.findall(f"{self.subject} {self.text}"))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class GoldPlan:
    """A gold plan: canonical text, its steps in the order of its leaves with answers filled in, and these leaves as the
    nodes of a tree.

    There are no steps where an answer is not known.
    """

    expression: str
    steps: tuple[AnnotatedStep, ...]
    entities: tuple[str, ...]
    nodes: tuple[Art, ...]


def write_gold_plan(question: str, steps: Sequence[GoldStep], seed: str) -> GoldPlan:
    """The expression of a gold decomposition. `seed` (the question's id) decides between equal wordings.

    Raises DroppedError when references point forward or nowhere, or when no plan holds them.
    """
    for index, step in enumerate(steps):
        if any(not 0 <= earlier < index for earlier in step.references):
            raise DroppedError("a step refers to a later step or to none")
    mentioned = [_spell_names(step, question) for step in steps]
    entities = tuple(dict.fromkeys(s.subject for s in mentioned if s.subject and find_mention(s.subject, question)))
    worded = _write_steps(mentioned, question, seed)
    numbers: dict[int, int] = {}  # of the steps as leaves; each stands after those that it refers to

    def write(index: int) -> str:
        numbers[index + 1] = len(numbers) + 1
        return mark_numbers(worded[index], numbers)

    shape = find_shape({index: step.references for index, step in enumerate(steps)})
    expression = build_expression(shape, write)
    if faults := plans.check(expression):
        raise DroppedError(f"the plan does not check ({faults[0].code})")
    known = all(any(step.answers) for step in steps)
    answered = tuple(_answer_step(steps, worded[k - 1], k) for k in numbers) if known else ()
    calls = [_build_call(mentioned[k - 1], numbers) for k in numbers]
    nodes = tuple(trees.build_nodes(expression, calls))
    return GoldPlan(plans.render(expression), answered, entities, nodes)


def _spell_names(step: GoldStep, question: str) -> GoldStep:
    """The step with its names spelt as the question spells them."""
    subject = find_mention(step.subject, question) if step.subject and not step.references else None
    return replace(step, subject=subject or step.subject, text=recase(step.text, question))


def _write_steps(steps: Sequence[GoldStep], question: str, seed: str) -> list[str]:
    """A question for every step, of the subjects that start chains as the question introduces them ("the film UHF").

    A chain is spoken of from its end: the last step stands at the question's start, the first beside the name that it
    starts from; a step between them is looked for between those places.
    """
    said, first = fold(question), [step.subject for step in steps if step.subject and not step.references]
    introduced = introduce(first, question)
    start = len(said[: max((said.find(fold(subject)) for subject in first), default=len(said))].split())
    worded: list[str] = []
    for index, step in enumerate(steps):
        if not step.relation:
            worded.append(tidy(step.text))
            continue
        own = said.find(fold(step.subject))
        place = start * (len(steps) - 1 - index) / max(len(steps) - 1, 1) if own < 0 else len(said[:own].split())
        subject = re.sub(r"(#\d+) ,", r"\1,", introduced.get(step.subject, step.subject))
        worded.append(ask(step.relation, subject, join_answers(step.answers), question, place, seed))
    return worded


def build_expression(tree: Tree, write: Callable[[int], str]) -> plans.Expression:
    """The plan of a tree without operations; `write` gives the text of a step, and is called from left to right."""
    if isinstance(tree, int):
        return plans.Atomic(write(tree))
    assert not isinstance(tree, Computed)
    parts = tuple(build_expression(part, write) for part in tree)
    return plans.Dependent(*parts) if isinstance(tree, tuple) else plans.Sequence(parts)


def replace_references(text: str, write: Callable[[int, str], str]) -> str:
    """The text with what `write` makes of each reference: of its number, and of the "s" where all values are meant."""
    return REFERENCE.sub(lambda mark: write(int(mark[1]), mark[2]), text)


def mark_numbers(text: str, numbers: Mapping[int, int]) -> str:
    """The text with `{n}` for `#k` and `{n*}` for `#ks`, n being the number of k."""
    return replace_references(text, lambda k, s: f"{{{numbers[k]}{'*' if s else ''}}}")


def _build_call(step: GoldStep, numbers: Mapping[int, int]) -> Call | None:
    """The operator of a step that was annotated as a relation; `[i]` stands for leaf i."""
    call = Relate(step.subject, step.relation) if step.relation else None
    return call and call.rewrite(lambda text: replace_references(text, lambda k, _: f"[{numbers[k]}]"))


def _answer_step(steps: Sequence[GoldStep], worded: str, k: int) -> AnnotatedStep:
    """Step k as it is asked once earlier answers are known."""
    asked = replace_references(worded, lambda earlier, _: join_answers(steps[earlier - 1].answers))
    return AnnotatedStep(asked, steps[k - 1].answers, steps[k - 1].title)
