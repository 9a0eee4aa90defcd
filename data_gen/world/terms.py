"""Terms: what a question talks about, as a value that gives its wording, its gold plan and its refinement steps.

A `NamedTerm` is an entity that the question names; an `AskedTerm` is the result of one leaf of the plan. Terms may
share sub-terms (the same object), which becomes one leaf with several users.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from itertools import product

from data_gen.questions import AnnotatedStep
from data_gen.world.documents import View, possess
from data_gen.world.graph import ARTICLE, Entity, Relation, Value, Wording
from revelator.plans import Atomic, Dependent, Expression, Sequence, bind, list_leaves, substitute

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


def _build(terms: list[AskedTerm], done: set[int], names: dict[int, str], found: dict[int, AskedTerm]) -> Expression:
    """The plan that computes `terms`, those `done` being known; `found` receives which term each leaf (by id) asks."""
    terms = [t for t in terms if not any(t is not o and id(t) in _list_below(o) for o in terms)]
    if len(terms) == 1:
        leaf = Atomic(_write_leaf(terms[0], names))
        found[id(leaf)] = terms[0]
        needed = [t for t in terms[0].inputs if id(t) not in done]
        return Dependent(_build(needed, done, names, found), leaf) if needed else leaf
    shared = [t for t in list_inputs(terms[0]) if id(t) not in done and all(id(t) in _list_below(o) for o in terms[1:])]
    if shared:
        top = max(shared, key=lambda t: len(_list_below(t)))
        return Dependent(
            _build([top], done, names, found), _build(terms, done | _list_below(top) | {id(top)}, names, found)
        )
    return Sequence(tuple(_build([t], done, names, found) for t in terms))


def list_inputs(term: AskedTerm) -> list[AskedTerm]:
    """Every term that a term needs, nearest first."""
    return [t for arg in term.inputs for t in (arg, *list_inputs(arg))]


def _list_below(term: AskedTerm) -> set[int]:
    return {id(t) for t in list_inputs(term)}


def _write_leaf(term: AskedTerm, names: dict[int, str]) -> str:
    return fill(term.wording.question, [_write_slot(arg, names) for arg in term.args])


def _write_slot(arg: Term, names: dict[int, str]) -> str:
    if isinstance(arg, NamedTerm):
        return arg.text
    return f"the {{{names[id(arg)]}}}" if arg.type in ARTICLE else f"{{{names[id(arg)]}}}"


@dataclass(frozen=True)
class Plan:
    """A gold plan: the expression, for each leaf its term and the steps that it takes, and for each step the types of
    things whose documents state its answers: that which it asks about, and those on a list that they say, too."""

    expression: Expression
    terms: tuple[AskedTerm, ...]
    steps: tuple[AnnotatedStep, ...]
    types: tuple[tuple[str, ...], ...]


def build_plan(view: View, roots: Items[AskedTerm]) -> Plan | None:
    """The plan of `roots`, its placeholders named so that each binds to the leaf that is meant; None if none does."""
    everything = list({id(t): t for root in roots for t in (*reversed(list_inputs(root)), root)}.values())
    for attempt in range(3):
        names = _name_terms(everything, attempt)
        found: dict[int, AskedTerm] = {}
        tree = _build(list(roots), set(), names, found)
        order = list_leaves(tree)
        terms = tuple(found[id(leaf)] for leaf in order)
        if _binds(tree, terms, names):
            steps = _list_steps(view, order, terms, names)
            return Plan(tree, terms, tuple(steps), tuple(steps.values()))
    return None


MARKS = (("first", "second"), ("one", "other"), ("former", "latter"))


def _name_terms(everything: list[AskedTerm], attempt: int) -> dict[int, str]:
    """A placeholder name for each term; two that feed one leaf never share theirs."""
    names = {id(t): (t.relation.name, t.relation.id, t.type)[attempt] for t in everything}
    for one, other in (term.inputs for term in everything if len(term.inputs) == 2):
        if names[id(one)] == names[id(other)]:
            names[id(one)], names[id(other)] = (f"{mark} {names[id(one)]}" for mark in MARKS[attempt])
    return names


def _binds(tree: Expression, terms: tuple[AskedTerm, ...], names: dict[int, str]) -> bool:
    index = {id(term): i for i, term in enumerate(terms)}
    wanted = [{names[id(arg)]: index[id(arg)] for arg in term.inputs} for term in terms]
    return [dict(source) for source in bind(tree).sources] == wanted


def _list_steps(
    view: View, order: Items[Atomic], terms: tuple[AskedTerm, ...], names: dict[int, str]
) -> dict[AnnotatedStep, tuple[str, ...]]:
    steps: dict[AnnotatedStep, tuple[str, ...]] = {}
    for leaf, term in zip(order, terms, strict=True):
        for combination in product(*(list_entities(arg) for arg in term.args)):
            entities = [view.graph.entities[i] for i in combination]
            values = {
                names[id(a)]: e.title for a, e in zip(term.args, entities, strict=True) if isinstance(a, AskedTerm)
            }
            tails = view.list_tails(combination[0], term.relation.id, *combination[1:])
            answers = tuple(view.graph.text(tail) for tail in tails)
            types = entities[0].type, *(term.relation.tail if term.relation.inverse else ())
            steps[AnnotatedStep(substitute(leaf.text, values), answers, entities[0].title)] = types
    return steps
