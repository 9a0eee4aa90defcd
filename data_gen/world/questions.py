"""Annotated questions of all four routes from one part of a world.

A complex question is of one of the kinds of `words.yaml`, drawn by weight: of `kinds`, or of `kinds for operators`,
whose trees have each operator in a tenth of their nodes or more, and which describe what they name more often.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.world.chains import (
    draw_chain,
    draw_count,
    draw_either,
    draw_fan_out,
    draw_intersect,
    draw_joint,
    draw_list_term,
    draw_shared_joint,
)
from data_gen.world.comparisons import (
    draw_compare,
    draw_compare_counts,
    draw_difference,
    draw_same,
    draw_with_own,
)
from data_gen.world.compound import draw_compound, draw_pair, draw_two_facts
from data_gen.world.documents import View
from data_gen.world.drawing import Draft, Drawing, lower
from data_gen.world.names import load_vocabulary
from data_gen.world.sources import divide_by_chance, find_holders
from data_gen.world.terms import Plan, build_plan, find_names, list_entities, list_inputs, word_question
from data_gen.world.trees import render_tree_of
from revelator.plans import Atomic, leaves, render, to_letters

DRAWS: dict[str, Callable[..., Draft | None]] = {
    "chain": draw_chain,
    "joint": draw_joint,
    "shared joint": draw_shared_joint,
    "compare": draw_compare,
    "same": draw_same,
    "difference": draw_difference,
    "own": draw_with_own,
    "two facts": draw_two_facts,
    "pair": lambda d, left, right: draw_pair(d, _draw(d, *left), _draw(d, *right)),
    "fan out": draw_fan_out,
    "count": draw_count,
    "more": draw_compare_counts,
    "in both": draw_intersect,
    "either": draw_either,
}


def _draw(d: Drawing, kind: str, *arguments: Any) -> Draft | None:
    return DRAWS[kind](d, *arguments)


def draw_kind(rng: random.Random, of: str) -> Callable[[Drawing], Draft | None]:
    """A kind of complex question, drawn by weight from a list of kinds."""
    kinds = load_vocabulary()[of]
    _, kind, *arguments = rng.choices(kinds, [weight for weight, *_ in kinds])[0]
    return lambda d: _draw(d, kind, *arguments)


def draw_single(drawing: Drawing) -> Draft | None:
    """One fact."""
    if drawing.rng.random() < 0.15 and drawing.lists:
        term = draw_list_term(drawing, 0)
        if term is None:
            return None
        return Draft(word_question(term, drawing.rng), (term,), "list", drawing.list_texts(term.values))
    return draw_joint(drawing, 0, 0) if drawing.rng.random() < 0.12 else draw_chain(drawing, 1)


LICENCE = "Apache-2.0"
ROUTES = {"single": 0.2, "compound": 0.2, "complex": 0.6}
DISTRACTORS = 4
DESCRIBED = 0.4  # of the names in questions for operators say what they name
TRIES = 60  # draws of one kind before another is taken: some kinds need a rare place in the graph


@dataclass(frozen=True)
class DrawnQuestion:
    """A question with the letters of its plan's shape."""

    row: AnnotatedQuestion
    shape: str


class Questions:
    """Draws annotated questions from one view; `prefix` begins the ids of its passages."""

    def __init__(self, view: View, rng: random.Random, split: str, prefix: str, operators: bool = False) -> None:
        self.view = view
        self.rng = rng
        self.split = split
        self.prefix = prefix
        self.kinds = "kinds for operators" if operators else "kinds"
        self.drawing = Drawing(view, rng, DESCRIBED if operators else 0.0)
        self.alike = _index_alike(view)

    def draw(self, route: str, id: str) -> DrawnQuestion | None:
        """One question of `route`, or None where the draw led nowhere."""
        make = {"single": draw_single, "compound": draw_compound}.get(route) or draw_kind(self.rng, self.kinds)
        for _ in range(TRIES):
            draft = make(self.drawing)
            made = build_plan(self.view, draft.roots) if draft and not _gives_itself_away(draft) else None
            if draft and made:
                return DrawnQuestion(self._annotate(draft, made, route, id), to_letters(made.expression))
        return None

    def _annotate(self, draft: Draft, made: Plan, route: str, id: str) -> AnnotatedQuestion:
        sources = divide_by_chance(id, [entity_type for types in made.types for entity_type in types])
        steps = tuple(
            replace(step, sources=find_holders(sources, types))
            for step, types in zip(made.steps, made.types, strict=True)
        )
        expression, text = made.expression, _add_noise(self.drawing, draft.question)
        either = draft.operation.startswith("either")  # a plan in letters cannot put two lists together
        if route == "single":
            expression, steps = Atomic(text), (replace(steps[0], question=text),)
        return AnnotatedQuestion(
            id=id,
            source="world",
            licence=LICENCE,
            split=self.split,
            question=text,
            route=route,
            expression="" if either else render(expression),
            parts=tuple(leaf.text for leaf in leaves(expression)) if route == "compound" else (),
            steps=() if either else steps,
            answers=draft.answers,
            passages=self._choose_passages(made),
            entities=tuple(dict.fromkeys(n.called for root in draft.roots for n in find_names(root))),
            operation=draft.operation,
            tree=render_tree_of(text, draft, made),
            sources=tuple(source for source, _ in sources),
        )

    def _choose_passages(self, made: Plan) -> tuple[AnnotatedPassage, ...]:
        """The documents that the steps are read from, and others that look like them, in random order."""
        by_title = {
            self.view.documents[i].title: i for term in made.terms for arg in term.args for i in list_entities(arg)
        }
        support = list(dict.fromkeys(by_title[step.title] for step in made.steps))
        chosen = [(i, True) for i in support] + [(i, False) for i in self._choose_distractors(support, made)]
        self.rng.shuffle(chosen)
        return tuple(self._make_passage(entity, relevant) for entity, relevant in chosen)

    def _make_passage(self, entity: int, relevant: bool) -> AnnotatedPassage:
        document = self.view.documents[entity]
        return AnnotatedPassage(document.title, document.text, relevant, f"{self.prefix}-{entity}")

    def _choose_distractors(self, support: list[int], made: Plan) -> list[int]:
        """Documents of similar names, then of neighbours in the graph, then any, that answer none of the steps."""
        rng, documents = self.rng, self.view.documents
        similar = [e for i in support for key in _list_keys(self.view, i) for e in self.alike[key][:6]]
        near = [fact.tail for i in support for r in self.view.list_single(i) for fact in self.view.graph.facts[i][r]]
        near += [head for i in support for head, _ in self.view.into[i][:6]]
        pool = [e for e in near if isinstance(e, int)]
        order = rng.sample(similar, min(3, len(similar))) + rng.sample(pool, min(3, len(pool)))
        order += [rng.randrange(len(documents)) for _ in range(DISTRACTORS)]
        found: list[int] = []
        for entity in dict.fromkeys(order):
            if (
                len(found) < DISTRACTORS
                and entity not in support
                and not self._answers_step(documents[entity].text, made)
            ):
                found.append(entity)
        return found

    def _answers_step(self, text: str, made: Plan) -> bool:
        """Whether a document names the subject of a step and one of its answers."""
        return any(
            step.title.partition(" (")[0] in text and any(answer in text for answer in step.answers)
            for step in made.steps
        )


def _add_noise(d: Drawing, text: str) -> str:
    """The question as people type it: at times without its capital and its question mark, or with a courtesy."""
    roll = d.rng.random()
    if roll >= 0.04 or not text.endswith("?"):
        return text
    return lower(text).removesuffix("?") if roll < 0.02 else d.say("courtesy", asked=lower(text))


def _gives_itself_away(draft: Draft) -> bool:
    """A leaf answers with what the question names, or the last one with what an earlier one found."""
    named = {n.entity.id for root in draft.roots for n in find_names(root)}
    for root in draft.roots:
        inner = list_inputs(root)
        if any(named & set(list_entities(term)) for term in (root, *inner)):
            return True
        if any(set(root.values) <= set(term.values) for term in inner):
            return True
    return False


def _list_keys(view: View, entity: int) -> tuple[str, ...]:
    found = view.graph.entities[entity]
    words = found.name.split()
    return (found.name.lower(), words[-1].lower() if found.type == "person" else words[0].lower())


def _index_alike(view: View) -> dict[str, list[int]]:
    index: dict[str, list[int]] = defaultdict(list)
    for entity in view.graph.entities:
        for key in _list_keys(view, entity.id):
            index[key].append(entity.id)
    return index
