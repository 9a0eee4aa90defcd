"""Annotated questions of all four routes from one part of a world.

A complex question is of one of the kinds of `words.yaml`, drawn by weight: of `kinds`, or of `kinds for operators`,
whose trees have each operator in a tenth of their nodes or more, and which describe what they name more often.

The tree of atomic operators that a question asks for (AtomR, section 3.2) follows from its terms. An entity that the
question describes ("the film Marrow Lane") is found by a `Search` with a descriptor. Each leaf of the plan is one step
along its relation, a `Relate`. What the ending asks of the leaves' answers is a `[DR]` node, or a `Filter` where it
keeps some of a list. A list that belongs to one of two entities is a node with a step for each.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from data_gen.annotate import trees
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
from data_gen.world.graph import ARTICLE
from data_gen.world.names import load_vocabulary
from data_gen.world.sources import divide_by_chance, find_holders
from data_gen.world.terms import (
    AskedTerm,
    NamedTerm,
    Plan,
    Term,
    build_plan,
    fill,
    find_names,
    list_entities,
    list_inputs,
)
from revelator.plans import Atomic, list_leaves, render, to_letters
from revelator.plans.art import Art
from revelator.plans.operators import Filter, Relate, Search

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
        return Draft(drawing.write_question(term), (term,), "list", drawing.list_texts(term.values))
    return draw_joint(drawing, 0, 0) if drawing.rng.random() < 0.12 else draw_chain(drawing, 1)


LICENCE = "Apache-2.0"
ROUTES = {"single": 0.2, "compound": 0.2, "complex": 0.6}
DISTRACTORS = 4
DESCRIBED = 0.4  # of the names in questions for operators say what they name
TRIES = 60  # draws of one kind before another is taken: some kinds need a rare place in the graph


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

    def draw(self, route: str, id: str) -> tuple[AnnotatedQuestion, str] | None:
        """One question of `route` and the letters of its plan's shape, or None where the draw led nowhere."""
        make = {"single": draw_single, "compound": draw_compound}.get(route) or draw_kind(self.rng, self.kinds)
        for _ in range(TRIES):
            draft = make(self.drawing)
            made = build_plan(self.view, draft.roots) if draft and not _gives_itself_away(draft) else None
            if draft and made:
                return self._annotate(draft, made, route, id), to_letters(made.expression)
        return None

    def _annotate(self, draft: Draft, made: Plan, route: str, id: str) -> AnnotatedQuestion:
        sources = divide_by_chance(id, [entity_type for types in made.types for entity_type in types])
        steps = tuple(
            replace(step, sources=find_holders(sources, types))
            for step, types in zip(made.steps, made.types, strict=True)
        )
        expression, text = made.expression, _add_noise(self.drawing, draft.question)
        either = draft.ending.startswith("either")  # a plan in letters cannot put two lists together
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
            parts=tuple(leaf.text for leaf in list_leaves(expression)) if route == "compound" else (),
            steps=() if either else steps,
            answers=draft.answers,
            passages=self._choose_passages(made),
            entities=tuple(dict.fromkeys(n.called for root in draft.roots for n in find_names(root))),
            ending=draft.ending,
            tree=_render_tree(text, draft, made),
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
    return lower(text).removesuffix("?") if roll < 0.02 else d.write_frame("courtesy", asked=lower(text))


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


# ---- trees


def _render_tree(question: str, draft: Draft, made: Plan) -> str:
    """Canonical text; "" for a tree that a decoder could not write. `made` is the plan of the draft's roots."""
    described = {id(name): name for root in draft.roots for name in find_names(root) if name.is_described}
    searches = [
        Art(f"Which {name.entity.noun} is called {name.entity.name}?", Search(name.entity.name, name.entity.noun))
        for name in described.values()
    ]
    numbers = {id(name): number for number, name in enumerate(described.values(), start=1)}
    leaves = list[Art]()
    for number, term in enumerate(made.terms, start=len(searches) + 1):
        leaves.append(_ask_leaf(term, numbers))
        numbers[id(term)] = number  # the last one of a term that is asked twice
    if draft.ending.startswith("either"):
        return trees.render_tree(question, [*searches, *_ask_either(draft, leaves, len(searches) + 1)])
    if len(leaves) == 1 and not searches and draft.ending != "count":
        return trees.render_tree(question, leaves)
    return trees.render_tree(question, _add_judgement(draft, [*searches, *leaves], numbers))


def _ask_leaf(term: AskedTerm, numbers: dict[int, int]) -> Art:
    shown = [_show_term(arg, numbers) for arg in term.args]
    said = [_write_term(arg, text) for arg, text in zip(term.args, shown, strict=True)]
    head, *second = shown
    return Art(fill(term.wording.question, said), Relate(head, " ".join([term.relation.id, *second])))


def _show_term(term: Term, numbers: dict[int, int]) -> str:
    number = numbers.get(id(term))
    return f"[{number}]" if number else term.called if isinstance(term, NamedTerm) else ""


def _write_term(term: Term, shown: str) -> str:
    """As it stands in a question: some names, and what stands for them, have an article."""
    if isinstance(term, NamedTerm):
        return shown if term.is_described else term.text
    return f"the {shown}" if term.type in ARTICLE else shown


def _ask_either(draft: Draft, leaves: list[Art], number: int) -> list[Art]:
    """What belongs to one of two entities is node `number`; the condition, or the count, is asked of that."""
    listed = Art(draft.listed, children=tuple(leaves))
    if draft.ending == "either count":
        return [listed, trees.ask_how_many(number)]
    return [listed, _keep(f"[{number}]", draft.said)]


def _keep(items: str, said: str) -> Art:
    return Art(f"Which of {items} {said}?", Filter((items,), said))


def _add_judgement(draft: Draft, children: list[Art], numbers: dict[int, int]) -> list[Art]:
    """The nodes so far, and what is asked of their answers."""
    ending, said, ends = draft.ending.split(" ")[0], draft.said, [numbers[id(root)] for root in draft.roots]
    if ending in ("count_is", "count_after", "which_is", "which_after"):
        [items] = (_show_term(arg, numbers) for arg in draft.roots[0].args)
        kept = [*children[: ends[0] - 1], _keep(items, said)]
        return kept if ending.startswith("which") else [*kept, trees.ask_how_many(ends[0])]
    if ending == "count":
        return [*children, trees.ask_how_many(ends[0])]
    if ending == "equal":
        return [*children, trees.ask_same(*ends)]
    if ending == "difference":
        return [*children, Art(f"How far apart are [{ends[0]}] and [{ends[1]}]?", operation=ending)]
    if ending == "intersect":
        return [*children, Art(f"What do [{ends[0]}] and [{ends[1]}] have in common?", operation=ending)]
    if ending.startswith("arg") and len(ends) == 1:
        return [*children, Art(f"Which of {_show_term(draft.roots[0].args[0], numbers)} {said}: [{ends[0]}]?")]
    if ending.startswith("arg"):
        source = ending.endswith("_source")
        things = [find_names(root)[0] if source else root.args[0] for root in draft.roots]
        shown = {_call_thing(thing, numbers): f"[{end}]" for thing, end in zip(things, ends, strict=True)}
        return [*children, trees.ask_which(ending.partition("_")[0], shown)]
    return children


def _call_thing(term: Term, numbers: dict[int, int]) -> str:
    """A thing that is compared; by its name where the question has one, because the answer is that name."""
    return term.called if isinstance(term, NamedTerm) else _show_term(term, numbers)
