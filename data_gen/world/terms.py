"""Terms: what a question talks about, as a value that gives its wording, its gold plan and its refinement steps.

A `NamedTerm` is an entity that the question names; an `AskedTerm` is the result of one leaf of the plan. Terms may
share sub-terms (the same object), which becomes one leaf with several users.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from itertools import product

from data_gen.annotate.plan import build_expression
from data_gen.questions import AnnotatedStep
from data_gen.world.documents import View, possess
from data_gen.world.graph import ARTICLE, Entity, Relation, Value, Wording
from revelator.plans import Expression
from revelator.plans.steps import Tree

SLOT = re.compile(r"\{(x's|y's|x|y)\}")
WORD = re.compile(r"[a-z]{4,}")
STEM = 5  # letters by which two words count as one


@dataclass(frozen=True, eq=False)
class NamedTerm:
    """An entity as the question names it; `called` is that name, without an article."""

    entity: Entity
    called: str

    @property
    def is_described(self) -> bool:
        return self.called == describe_entity(self.entity)

    @property
    def text(self) -> str:
        return f"the {self.called}" if self.entity.type in ARTICLE and not self.is_described else self.called


@dataclass(frozen=True, eq=False)
class AskedTerm:
    """The answer to a relation's question about `args` (the subject, and the second argument if it has one)."""

    relation: Relation
    wording: Wording
    args: tuple[Term, ...]
    values: tuple[int | Value, ...]
    type: str  # entity type of the values, or the kind of value

    @property
    def inputs(self) -> tuple[AskedTerm, ...]:
        return tuple(arg for arg in self.args if isinstance(arg, AskedTerm))


Term = NamedTerm | AskedTerm


def describe_entity(entity: Entity) -> str:
    return f"the {entity.noun} {entity.name}"


def list_entities(term: Term) -> tuple[int, ...]:
    """Entities that a term stands for."""
    return (term.entity.id,) if isinstance(term, NamedTerm) else tuple(v for v in term.values if isinstance(v, int))


def find_names(term: Term) -> list[NamedTerm]:
    """The entities that the question names for a term, in order."""
    return [term] if isinstance(term, NamedTerm) else [n for arg in term.args for n in find_names(arg)]


# ---- wording


def fill(template: str, args: Items[str]) -> str:
    slots = {"x": args[0], "y": args[-1]}
    return SLOT.sub(lambda m: slots[m[1]] if m[1] in slots else possess(slots[m[1][0]]), template)


def echo_wording(terms: Items[AskedTerm], said: str) -> tuple[AskedTerm, ...]:
    """The same terms, each in the wording whose question has most words of `said`, by how they begin; the first of
    those that have as many. For a question that says something of what they are about (`was born first`) and uses no
    wording of theirs: a plan that asked in any of them could not be told from it."""
    return tuple(replace(term, wording=_choose_nearest(term.relation.ask, _find_stems(said))) for term in terms)


def _choose_nearest(wordings: Items[Wording], stems: set[str]) -> Wording:
    return max(wordings, key=lambda wording: len(stems & _find_stems(wording.question)))


def _find_stems(text: str) -> set[str]:
    return {word[:STEM] for word in WORD.findall(text.lower())}


def ends_open(phrase: str) -> bool:
    """Whether a noun phrase ends with what it is about."""
    return phrase.endswith(("{x}", "{y}"))


# ---- plan


def _shape(terms: list[AskedTerm], done: set[int], places: dict[int, int]) -> Tree:
    """The tree that computes `terms`, those `done` being known; its leaves are the places of terms."""
    terms = [t for t in terms if not any(t is not o and id(t) in _list_below(o) for o in terms)]
    if len(terms) == 1:
        needed = [t for t in terms[0].inputs if id(t) not in done]
        leaf = places[id(terms[0])]
        return (_shape(needed, done, places), leaf) if needed else leaf
    shared = [t for t in list_inputs(terms[0]) if id(t) not in done and all(id(t) in _list_below(o) for o in terms[1:])]
    if shared:
        top = max(shared, key=lambda t: len(_list_below(t)))
        return _shape([top], done, places), _shape(terms, done | _list_below(top) | {id(top)}, places)
    return [_shape([t], done, places) for t in terms]


def list_inputs(term: AskedTerm) -> list[AskedTerm]:
    """Every term that a term needs, nearest first."""
    return [t for arg in term.inputs for t in (arg, *list_inputs(arg))]


def _list_below(term: AskedTerm) -> set[int]:
    return {id(t) for t in list_inputs(term)}


def _write_leaf(term: AskedTerm, numbers: dict[int, int]) -> str:
    return fill(term.wording.question, [_write_slot(arg, numbers) for arg in term.args])


def _ask_about(term: AskedTerm, entities: Items[Entity]) -> str:
    """The question about these entities, those that the question names as it names them."""
    shown = [
        arg.text if isinstance(arg, NamedTerm) else f"{'the ' if arg.type in ARTICLE else ''}{entity.title}"
        for arg, entity in zip(term.args, entities, strict=True)
    ]
    return fill(term.wording.question, shown)


def _write_slot(arg: Term, numbers: dict[int, int]) -> str:
    if isinstance(arg, NamedTerm):
        return arg.text
    return f"{'the ' if arg.type in ARTICLE else ''}{{{numbers[id(arg)]}}}"


@dataclass(frozen=True)
class Plan:
    """A gold plan: the expression, for each leaf its term and the steps that it takes, and for each step the types of
    things whose documents state its answers: that which it asks about, and those on a list that they say, too."""

    expression: Expression
    terms: tuple[AskedTerm, ...]
    steps: tuple[AnnotatedStep, ...]
    types: tuple[tuple[str, ...], ...]


def build_plan(view: View, roots: Items[AskedTerm]) -> Plan:
    """The plan of `roots`. What two branches need is asked in both; each takes its own."""
    everything = list({id(t): t for root in roots for t in (*reversed(list_inputs(root)), root)}.values())
    tree = _shape(list(roots), set(), {id(term): place for place, term in enumerate(everything)})
    terms = list[AskedTerm]()
    numbers: dict[int, int] = {}  # of the leaves so far, the last for a term that stands twice

    def write(place: int) -> str:
        terms.append(term := everything[place])
        text = _write_leaf(term, numbers)
        numbers[id(term)] = len(terms)
        return text

    expression = build_expression(tree, write)
    steps = _list_steps(view, terms)
    return Plan(expression, tuple(terms), tuple(steps), tuple(steps.values()))


def _list_steps(view: View, terms: Items[AskedTerm]) -> dict[AnnotatedStep, tuple[str, ...]]:
    steps: dict[AnnotatedStep, tuple[str, ...]] = {}
    for term in terms:
        for combination in product(*(list_entities(arg) for arg in term.args)):
            entities = [view.graph.entities[i] for i in combination]
            tails = view.list_tails(combination[0], term.relation.id, *combination[1:])
            answers = tuple(view.graph.text(tail) for tail in tails)
            types = entities[0].type, *(term.relation.tail if term.relation.inverse else ())
            steps[AnnotatedStep(_ask_about(term, entities), answers, entities[0].title)] = types
    return steps
