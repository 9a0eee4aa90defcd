"""The annotation teacher: gold decompositions become G[q] expressions in natural words. No model is asked.

A decomposition is a list of steps, some of which refer to earlier ones as `#n`. Its references give the shape of the
expression (`A * B`, `(A + B) * C`, …), its texts or relations the words, and each reference becomes a placeholder
whose name says what it stands for. Whether the placeholders reach the steps they stand for is asked of
`revelator.plans.bind`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from data_gen.annotate import trees
from data_gen.annotate.inflection import to_plural
from data_gen.annotate.names import find_mention, fold, introduce, recase
from data_gen.annotate.wording import WordedStep, ask, name_answer, tidy
from data_gen.questions import AnnotatedStep, DroppedError
from revelator import plans
from revelator.plans.art import Art
from revelator.plans.operators import Call, Filter, Relate
from revelator.trace import join_answers

REFERENCE = re.compile(r"#(\d+)(s?)")  # `#n` is the value of step n, `#ns` all its values
MAX_NAMINGS = 64  # combinations of placeholder names tried before a decomposition is given up


@dataclass(frozen=True)
class GoldStep:
    """One step as annotated: a question in free words, or a relation and its subject; `#n` is step n, from 1."""

    text: str = ""
    subject: str = ""
    relation: str = ""
    answers: tuple[str, ...] = ()  # none where the source tells none
    title: str = ""
    names: tuple[str, ...] = ()  # for its value, best first; found in its words if none are given
    call: Filter | None = None  # what it keeps of an earlier step; `#n` as in its text

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

    Raises DroppedError when references point forward or nowhere, or when no naming binds as annotated.
    """
    for index, step in enumerate(steps):
        if any(not 0 <= earlier < index for earlier in step.references):
            raise DroppedError("a step refers to a later step or to none")
    mentioned = [_spell_names(step, question) for step in steps]
    entities = tuple(dict.fromkeys(s.subject for s in mentioned if s.subject and find_mention(s.subject, question)))
    worded = _write_steps(_introduce_subjects(mentioned, question), question, seed)
    written = find_shape({index: step.references for index, step in enumerate(steps)})
    orders = (
        written,
        _reorder(written, _order_by_mention(worded)),
    )  # as annotated, or as later steps speak of the parts
    tries = (
        (tree, _name_placeholders(tree, steps, worded, namings))
        for namings in (_try_best_names, _try_other_names)
        for tree in orders
    )
    tree, expression = next(((tree, found) for tree, found in tries if found), (written, None))
    if expression is None:
        raise DroppedError("no naming of the placeholders binds as annotated")
    order = list_leaves(tree)
    known = all(any(step.answers) for step in steps)
    answered = tuple(_answer_step(steps, worded, index) for index in order) if known else ()
    calls = [_build_call(mentioned[i], order) for i in order]
    nodes = tuple(trees.build_nodes(expression, calls))
    return GoldPlan(plans.render(expression), answered, entities, nodes)


def _spell_names(step: GoldStep, question: str) -> GoldStep:
    """The step with its names spelt as the question spells them."""
    subject = find_mention(step.subject, question) if step.subject and not step.references else None
    return replace(step, subject=subject or step.subject, text=recase(step.text, question))


def _introduce_subjects(steps: Sequence[GoldStep], question: str) -> list[GoldStep]:
    """The steps with the subjects that start chains introduced as the question does ("the film UHF")."""
    first = [step.subject for step in steps if step.subject and not step.references]
    known = dict(zip(first, introduce(first, question), strict=True))
    return [replace(step, subject=known.get(step.subject, step.subject)) for step in steps]


def _write_steps(steps: Sequence[GoldStep], question: str, seed: str) -> list[WordedStep]:
    """A question for every step.

    A chain is spoken of from its end: the last step stands at the question's start, the first beside the name that it
    starts from; a step between them is looked for between those places.
    """
    said = fold(question)
    named = [said.find(fold(step.subject)) for step in steps if step.subject and not step.references]
    start = len(said[: max(named, default=len(said))].split())
    worded: list[WordedStep] = []
    for index, step in enumerate(steps):
        if not step.relation:
            text = tidy(step.text)
            worded.append(WordedStep(text, step.names or name_answer(text)))
            continue
        own = said.find(fold(step.subject))
        place = start * (len(steps) - 1 - index) / max(len(steps) - 1, 1) if own < 0 else len(said[:own].split())
        taken = [w.names[0] for w in worded]
        subject = re.sub(r"(#\d+) ,", r"\1,", step.subject)
        worded.append(ask(step.relation, subject, join_answers(step.answers), question, place, taken, seed))
    return worded


Namings = Callable[[Sequence[WordedStep]], Iterator[Sequence[str]]]
# A tree of step indices: an index, a list (independent), or a pair (left, right) where right uses left.
Tree = int | list["Tree"] | tuple["Tree", "Tree"]


def find_shape(references: Mapping[int, Sequence[int]]) -> Tree:
    """The shape that references draw: parts without a common step are independent, a last step depends on the rest."""
    parts = _split_components(references)
    if len(parts) > 1:
        return [find_shape(part) for part in parts]
    if len(references) == 1:
        return next(iter(references))
    used = {index for sources in references.values() for index in sources}
    last = [index for index in references if index not in used]
    rest = {
        index: [r for r in sources if r in references] for index, sources in references.items() if index not in last
    }
    return find_shape(rest), (last[0] if len(last) == 1 else list(last))


def _split_components(references: Mapping[int, Sequence[int]]) -> list[dict[int, Sequence[int]]]:
    group = {index: {index} for index in references}
    for index, sources in references.items():
        for source in sources:
            if group[index] is not group[source]:
                merged = group[index] | group[source]
                group.update(dict.fromkeys(merged, merged))
    distinct = {min(members): members for members in group.values()}
    return [{i: references[i] for i in sorted(distinct[first])} for first in sorted(distinct)]


def list_leaves(tree: Tree) -> list[int]:
    """Step indices as the leaves stand, left to right."""
    return [tree] if isinstance(tree, int) else [index for part in tree for index in list_leaves(part)]


def _reorder(tree: Tree, mentions: Sequence[int]) -> Tree:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, tuple):
        return _reorder(tree[0], mentions), _reorder(tree[1], mentions)
    return sorted(
        (_reorder(part, mentions) for part in tree), key=lambda part: min(map(mentions.index, list_leaves(part)))
    )


def _name_placeholders(
    tree: Tree, steps: Sequence[GoldStep], worded: Sequence[WordedStep], namings: Namings
) -> plans.Expression | None:
    """The expression under the first naming that binds as annotated."""
    order = list_leaves(tree)
    leaf_of = {index: leaf for leaf, index in enumerate(order)}
    marked = any(match[2] for w in worded for match in REFERENCE.finditer(w.question))
    for names, many in itertools.product(namings(worded), (True, False)[: 1 + marked]):
        questions = [w.question if many else REFERENCE.sub(r"#\1", w.question) for w in worded]
        expression = _build_expression(tree, [_fill_references(question, names) for question in questions])
        meant = [_map_placeholders(questions[index], names, leaf_of) for index in order]
        distinct = all(len(set(m.values())) == len(steps[i].references) for m, i in zip(meant, order, strict=True))
        if not distinct or plans.check(expression):
            continue
        if [dict(sources) for sources in plans.bind(expression).sources] == meant:
            return expression
    return None


def _map_placeholders(question: str, names: Sequence[str], leaf_of: Mapping[int, int]) -> dict[str, int]:
    """The leaf that each placeholder of a question stands for."""
    return {_name_placeholder(match, names): leaf_of[int(match[1]) - 1] for match in REFERENCE.finditer(question)}


def _name_placeholder(match: re.Match[str], names: Sequence[str]) -> str:
    name = names[int(match[1]) - 1]
    return to_plural(name) if match[2] else name


def _try_best_names(worded: Sequence[WordedStep]) -> Iterator[Sequence[str]]:
    """The best name of every step; where names meet, numbered as later steps mention them or as the steps stand."""
    best = [w.names[0] for w in worded]
    yield best
    yield _number_names(best, _order_by_mention(worded))
    yield _number_names(best, range(len(best)))


def _try_other_names(worded: Sequence[WordedStep]) -> Iterator[Sequence[str]]:
    """Other names: first of the steps whose best names meet, then of all."""
    best = [w.names[0] for w in worded]
    meeting = [w.names if best.count(name) > 1 else w.names[:1] for w, name in zip(worded, best, strict=True)]
    for options in (meeting, [w.names for w in worded]):
        for choice in islice(itertools.product(*options), MAX_NAMINGS):
            yield choice
            yield _number_names(choice, range(len(choice)))


def _number_names(choice: Sequence[str], order: Sequence[int]) -> list[str]:
    seen: dict[str, int] = {}
    numbered = list(choice)
    for index in order:
        name = choice[index]
        seen[name] = seen.get(name, 0) + 1
        numbered[index] = name if seen[name] == 1 else f"{name}_{seen[name]}"
    return numbered


def _order_by_mention(worded: Sequence[WordedStep]) -> list[int]:
    """The steps in the order in which others first mention them, then the rest."""
    mentioned = [int(match[1]) - 1 for w in worded for match in REFERENCE.finditer(w.question)]
    return list(dict.fromkeys([*mentioned, *range(len(worded))]))


def _build_expression(tree: Tree, texts: Sequence[str]) -> plans.Expression:
    if isinstance(tree, int):
        return plans.Atomic(texts[tree])
    if isinstance(tree, tuple):
        left, right = tree
        return plans.Dependent(_build_expression(left, texts), _build_expression(right, texts))
    return plans.Sequence(tuple(_build_expression(part, texts) for part in tree))


def _fill_references(question: str, names: Sequence[str]) -> str:
    return REFERENCE.sub(lambda match: "{" + _name_placeholder(match, names) + "}", question)


def _build_call(step: GoldStep, order: Sequence[int]) -> Call | None:
    """The operator of a step that was annotated with one, or as a relation; `[i]` stands for leaf i."""

    def mark(text: str) -> str:
        return REFERENCE.sub(lambda match: f"[{order.index(int(match[1]) - 1) + 1}]", text)

    if step.call:
        return Filter(tuple(map(mark, step.call.entities)), mark(step.call.condition))
    return Relate(mark(step.subject), step.relation) if step.relation else None


def _answer_step(steps: Sequence[GoldStep], worded: Sequence[WordedStep], index: int) -> AnnotatedStep:
    """The step as it is asked once earlier answers are known."""
    asked = REFERENCE.sub(lambda match: join_answers(steps[int(match[1]) - 1].answers), worded[index].question)
    return AnnotatedStep(asked, steps[index].answers, steps[index].title)
