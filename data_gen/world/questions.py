"""Annotated questions of all four routes from one part of a world."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace

from data_gen.annotated import AnnotatedQuestion, Evidence
from data_gen.world.compound import compound
from data_gen.world.drawing import Draft, Drawing, lower
from data_gen.world.kinds import draw_kind, single
from data_gen.world.names import Names
from data_gen.world.straightforward import draw
from data_gen.world.terms import Plan, ids, inputs_below, names_in, plan
from data_gen.world.trees import tree_of
from data_gen.world.view import View
from revelator.plans import Atomic, leaves, render, to_letters

LICENCE = "Apache-2.0"
ROUTES = {"straightforward": 0.14, "single": 0.18, "compound": 0.18, "complex": 0.5}
DISTRACTORS = 4
TRIES = 60  # draws of one kind before another is taken: some kinds need a rare place in the graph


@dataclass(frozen=True)
class Made:
    """A question with the letters of its plan's shape ("" without a plan)."""

    row: AnnotatedQuestion
    shape: str


class Questions:
    """Draws annotated questions from one view; `prefix` begins the ids of its passages."""

    def __init__(self, view: View, rng: random.Random, names: Names, split: str, prefix: str) -> None:
        self.view = view
        self.rng = rng
        self.names = names
        self.split = split
        self.prefix = prefix
        self.drawing = Drawing(view, rng)
        self.alike = _alike(view)

    def draw(self, route: str, id: str) -> Made | None:
        """One question of `route`, or None where the draw led nowhere."""
        if route == "straightforward":
            text, answer = draw(self.rng, self.names)
            row = AnnotatedQuestion(
                id, "world", LICENCE, self.split, text, route, answers=(answer,), operation="computed"
            )
            return Made(row, "")
        make = {"single": single, "compound": compound}.get(route) or draw_kind(self.rng)
        for _ in range(TRIES):
            draft = make(self.drawing)
            made = plan(self.view, draft.roots) if draft and not _gives_itself_away(draft) else None
            if draft and made:
                return Made(self._annotated(draft, made, route, id), to_letters(made.expression))
        return None

    def _annotated(self, draft: Draft, made: Plan, route: str, id: str) -> AnnotatedQuestion:
        expression, steps, text = made.expression, made.steps, noisy(draft.question, self.rng)
        if route == "single":
            expression, steps = Atomic(text), (replace(steps[0], question=text),)
        return AnnotatedQuestion(
            id=id,
            source="world",
            licence=LICENCE,
            split=self.split,
            question=text,
            route=route,
            expression=render(expression),
            parts=tuple(leaf.text for leaf in leaves(expression)) if route == "compound" else (),
            steps=steps,
            answers=draft.answers,
            passages=self._passages(made),
            entities=tuple(dict.fromkeys(n.called for root in draft.roots for n in names_in(root))),
            operation=draft.operation,
            tree=tree_of(text, expression, draft, made),
        )

    def _passages(self, made: Plan) -> tuple[Evidence, ...]:
        """The documents that the steps are read from, and others that look like them, in random order."""
        by_title = {self.view.documents[i].title: i for term in made.terms for arg in term.args for i in ids(arg)}
        support = list(dict.fromkeys(by_title[step.title] for step in made.steps))
        chosen = [(i, True) for i in support] + [(i, False) for i in self._distractors(support, made)]
        self.rng.shuffle(chosen)
        return tuple(self._evidence(entity, relevant) for entity, relevant in chosen)

    def _evidence(self, entity: int, relevant: bool) -> Evidence:
        document = self.view.documents[entity]
        return Evidence(document.title, document.text, relevant, f"{self.prefix}-{entity}")

    def _distractors(self, support: list[int], made: Plan) -> list[int]:
        """Documents of similar names, then of neighbours in the graph, then any, that answer none of the steps."""
        rng, documents = self.rng, self.view.documents
        similar = [e for i in support for key in _keys(self.view, i) for e in self.alike[key][:6]]
        near = [fact.tail for i in support for r in self.view.single(i) for fact in self.view.graph.facts[i][r]]
        near += [head for i in support for head, _ in self.view.into[i][:6]]
        pool = [e for e in near if isinstance(e, int)]
        order = rng.sample(similar, min(3, len(similar))) + rng.sample(pool, min(3, len(pool)))
        order += [rng.randrange(len(documents)) for _ in range(DISTRACTORS)]
        found: list[int] = []
        for entity in dict.fromkeys(order):
            if len(found) < DISTRACTORS and entity not in support and not self._answers(documents[entity].text, made):
                found.append(entity)
        return found

    def _answers(self, text: str, made: Plan) -> bool:
        return any(
            self._stem(step.title) in text and any(answer in text for answer in step.answer.split("; "))
            for step in made.steps
        )

    def _stem(self, title: str) -> str:
        return title.partition(" (")[0]


def noisy(text: str, rng: random.Random) -> str:
    """The question as people type it: at times without its capital and its question mark, or with a courtesy."""
    roll = rng.random()
    if roll < 0.02 and text.endswith("?"):
        return lower(text).removesuffix("?")
    if roll < 0.04 and text.endswith("?"):
        return (
            f"{rng.choice(('I wonder,', 'Quick question:', 'Please tell me:', 'Do you know this one?'))} {lower(text)}"
        )
    return text


def _gives_itself_away(draft: Draft) -> bool:
    """A leaf answers with what the question names, or the last one with what an earlier one found."""
    named = {n.entity.id for root in draft.roots for n in names_in(root)}
    for root in draft.roots:
        inner = inputs_below(root)
        if any(named & set(ids(term)) for term in (root, *inner)):
            return True
        if any(set(root.values) <= set(term.values) for term in inner):
            return True
    return False


def _keys(view: View, entity: int) -> tuple[str, ...]:
    found = view.graph.entities[entity]
    words = found.name.split()
    return (found.name.lower(), words[-1].lower() if found.type == "person" else words[0].lower())


def _alike(view: View) -> dict[str, list[int]]:
    index: dict[str, list[int]] = defaultdict(list)
    for entity in view.graph.entities:
        for key in _keys(view, entity.id):
            index[key].append(entity.id)
    return index
