"""The annotation teacher: gold decompositions become G[q] expressions in natural words. No model is asked.

A decomposition is a list of steps, some of which refer to earlier ones as `#n`. Its references give the shape of the
expression (`A * B`, `(A + B) * C`, …), its texts or relations the words, and each reference becomes a placeholder
whose name says what it stands for. Whether the placeholders reach the steps they stand for is asked of
`revelator.language.bind`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from data_gen import trees
from data_gen.annotated import AnnotatedStep
from data_gen.mention import folded, introduced, mention, recased
from data_gen.wording import Worded, ask, names_of, tidy
from revelator import language
from revelator.art import Art, Relate
from revelator.errors import RevelatorError

REFERENCE = re.compile(r"#(\d+)")
MAX_NAMINGS = 64  # combinations of placeholder names tried before a decomposition is given up


class UnplannableError(RevelatorError):
    """A decomposition that gives no valid expression; the message is the reason under which it is counted."""


@dataclass(frozen=True)
class GoldStep:
    """One step as annotated: a question in free words, or a relation and its subject; `#n` is step n, from 1."""

    answer: str
    text: str = ""
    subject: str = ""
    relation: str = ""
    title: str = ""

    @property
    def references(self) -> tuple[int, ...]:
        """Indices (from 0) of the steps referred to, in order of first use."""
        found = (int(number) - 1 for number in REFERENCE.findall(f"{self.subject} {self.text}"))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Planned:
    """A gold plan: canonical text, its steps in the order of its leaves with answers filled in, and these leaves as the
    nodes of a tree."""

    expression: str
    steps: tuple[AnnotatedStep, ...]
    entities: tuple[str, ...]
    nodes: tuple[Art, ...]


def plan(question: str, steps: Sequence[GoldStep], seed: str) -> Planned:
    """The expression of a gold decomposition. `seed` (the question's id) decides between equal wordings.

    Raises UnplannableError when references point forward or nowhere, or when no naming binds as annotated.
    """
    for index, step in enumerate(steps):
        if any(not 0 <= reference < index for reference in step.references):
            raise UnplannableError("a step refers to a later step or to none")
    mentioned = [_mentioned(step, question) for step in steps]
    entities = tuple(dict.fromkeys(s.subject for s in mentioned if s.subject and mention(s.subject, question)))
    worded = _worded(_introduced(mentioned, question), question, seed)
    tree = shape({index: step.references for index, step in enumerate(steps)})
    order = leaf_order(tree)
    expression = _named(tree, order, steps, worded)
    answered = tuple(_answered(steps, worded, i) for i in order)
    calls = [_relate(mentioned[i], order) for i in order]
    return Planned(language.render(expression), answered, entities, tuple(trees.nodes(expression, calls)))


def _mentioned(step: GoldStep, question: str) -> GoldStep:
    """The step with its names spelt as the question spells them."""
    subject = mention(step.subject, question) if step.subject and not step.references else None
    return replace(step, subject=subject or step.subject, text=recased(step.text, question))


def _introduced(steps: Sequence[GoldStep], question: str) -> list[GoldStep]:
    """The steps with the subjects that start chains introduced as the question does ("the film UHF")."""
    first = [step.subject for step in steps if step.subject and not step.references]
    known = dict(zip(first, introduced(first, question), strict=True))
    return [replace(step, subject=known.get(step.subject, step.subject)) for step in steps]


def _worded(steps: Sequence[GoldStep], question: str, seed: str) -> list[Worded]:
    """A question for every step.

    A chain is spoken of from its end: the last step stands at the question's start, the first beside the name that it
    starts from; a step between them is looked for between those places.
    """
    said = folded(question)
    named = [said.find(folded(step.subject)) for step in steps if step.subject and not step.references]
    start = len(said[: max(named, default=len(said))].split())
    worded: list[Worded] = []
    for index, step in enumerate(steps):
        if not step.relation:
            text = tidy(step.text)
            worded.append(Worded(text, names_of(text)))
            continue
        own = said.find(folded(step.subject))
        place = start * (len(steps) - 1 - index) / max(len(steps) - 1, 1) if own < 0 else len(said[:own].split())
        taken = [w.names[0] for w in worded]
        worded.append(ask(step.relation, step.subject, step.answer, question, place, taken, seed))
    return worded


# A tree of step indices: an index, a list (independent), or a pair (left, right) where right uses left.
Tree = int | list["Tree"] | tuple["Tree", "Tree"]


def shape(references: Mapping[int, Sequence[int]]) -> Tree:
    """The shape that references draw: parts without a common step are independent, a last step depends on the rest."""
    parts = _components(references)
    if len(parts) > 1:
        return [shape(part) for part in parts]
    if len(references) == 1:
        return next(iter(references))
    used = {index for sources in references.values() for index in sources}
    last = [index for index in references if index not in used]
    rest = {
        index: [r for r in sources if r in references] for index, sources in references.items() if index not in last
    }
    return shape(rest), (last[0] if len(last) == 1 else list(last))


def _components(references: Mapping[int, Sequence[int]]) -> list[dict[int, Sequence[int]]]:
    group = {index: {index} for index in references}
    for index, sources in references.items():
        for source in sources:
            if group[index] is not group[source]:
                merged = group[index] | group[source]
                group.update(dict.fromkeys(merged, merged))
    distinct = {min(members): members for members in group.values()}
    return [{i: references[i] for i in sorted(distinct[first])} for first in sorted(distinct)]


def leaf_order(tree: Tree) -> list[int]:
    """Step indices as the leaves stand, left to right."""
    return [tree] if isinstance(tree, int) else [index for part in tree for index in leaf_order(part)]


def _named(tree: Tree, order: list[int], steps: Sequence[GoldStep], worded: Sequence[Worded]) -> language.Expression:
    """The expression under the first naming that binds as annotated."""
    leaf_of = {index: leaf for leaf, index in enumerate(order)}
    for names in itertools.islice(_namings(worded), MAX_NAMINGS):
        expression = _expression(tree, [_filled(w.question, names) for w in worded])
        meant = [{names[r]: leaf_of[r] for r in steps[index].references} for index in order]
        distinct = all(len(m) == len(steps[i].references) for m, i in zip(meant, order, strict=True))
        if not distinct or language.check(expression):
            continue
        if [dict(sources) for sources in language.bind(expression).sources] == meant:
            return expression
    raise UnplannableError("no naming of the placeholders binds as annotated")


def _namings(worded: Sequence[Worded]) -> Iterator[list[str]]:
    """Names for every step: the best ones first, then others, then numbered ones where names meet."""
    yield [w.names[0] for w in worded]
    for choice in itertools.product(*(w.names for w in worded)):
        yield list(choice)
    for choice in itertools.product(*(w.names for w in worded)):
        seen: dict[str, int] = {}
        numbered = []
        for name in choice:
            seen[name] = seen.get(name, 0) + 1
            numbered.append(name if seen[name] == 1 else f"{name} {seen[name]}")
        yield numbered


def _expression(tree: Tree, texts: Sequence[str]) -> language.Expression:
    if isinstance(tree, int):
        return language.Atomic(texts[tree])
    if isinstance(tree, tuple):
        left, right = tree
        return language.Dependent(_expression(left, texts), _expression(right, texts))
    return language.Sequence(tuple(_expression(part, texts) for part in tree))


def _filled(question: str, names: Sequence[str]) -> str:
    return REFERENCE.sub(lambda match: "{" + names[int(match[1]) - 1] + "}", question)


def _relate(step: GoldStep, order: Sequence[int]) -> Relate | None:
    """The operator of a step that was annotated as a relation; `[i]` stands for leaf i."""
    head = REFERENCE.sub(lambda match: f"[{order.index(int(match[1]) - 1) + 1}]", step.subject)
    return Relate(head, step.relation) if step.relation else None


def _answered(steps: Sequence[GoldStep], worded: Sequence[Worded], index: int) -> AnnotatedStep:
    """The step as it is asked once earlier answers are known."""
    asked = REFERENCE.sub(lambda match: steps[int(match[1]) - 1].answer, worded[index].question)
    return AnnotatedStep(asked, steps[index].answer, steps[index].title)
