"""The tree of atomic operators that a question of a world asks for (AtomR, section 3.2); it follows from its terms.

An entity that the question describes ("the film Marrow Lane") is found by a `Search` with a descriptor. Each leaf of
the plan is one step along its relation, a `Relate`. What the operation asks of the leaves' answers is a `[DR]` node,
or a `Filter` where it keeps some of a list. A list that belongs to one of two entities is a node with a step for each.
"""

from __future__ import annotations

from data_gen.annotate import trees
from data_gen.world.drawing import Draft
from data_gen.world.graph import ARTICLE
from data_gen.world.terms import AskedTerm, NamedTerm, Plan, Term, fill, find_names
from revelator.plans.art import Art, Filter, Relate, Search


def render_tree_of(question: str, draft: Draft, made: Plan) -> str:
    """Canonical text; "" for a tree that a decoder could not write. `made` is the plan of the draft's roots."""
    described = {id(name): name for root in draft.roots for name in find_names(root) if name.described}
    searches = [
        Art(f"Which {name.entity.noun} is called {name.entity.name}?", Search(name.entity.name, name.entity.noun))
        for name in described.values()
    ]
    numbers = {id(term): number for number, term in enumerate([*described.values(), *made.terms], start=1)}
    leaves = [_ask_leaf(term, numbers) for term in made.terms]
    if draft.operation.startswith("either"):
        return trees.render_tree(question, [*searches, *_ask_either(draft, leaves, len(searches) + 1)])
    if len(leaves) == 1 and not searches and draft.operation != "count":
        return trees.render_tree(question, leaves)
    return trees.render_tree(question, _add_judgement(draft, [*searches, *leaves], numbers))


def _ask_leaf(term: AskedTerm, numbers: dict[int, int]) -> Art:
    shown = [_show_term(arg, numbers) for arg in term.args]
    said = [_say_term(arg, text) for arg, text in zip(term.args, shown, strict=True)]
    head, *second = shown
    return Art(fill(term.wording.question, said), Relate(head, " ".join([term.relation.id, *second])))


def _show_term(term: Term, numbers: dict[int, int]) -> str:
    number = numbers.get(id(term))
    return f"[{number}]" if number else term.called if isinstance(term, NamedTerm) else ""


def _say_term(term: Term, shown: str) -> str:
    """As it stands in a question: some names, and what stands for them, have an article."""
    if isinstance(term, NamedTerm):
        return shown if term.described else term.text
    return f"the {shown}" if term.type in ARTICLE else shown


def _ask_either(draft: Draft, leaves: list[Art], number: int) -> list[Art]:
    """What belongs to one of two entities is node `number`; the condition, or the count, is asked of that."""
    listed = Art(draft.listed, children=tuple(leaves))
    if draft.operation == "either count":
        return [listed, trees.ask_how_many(number)]
    return [listed, _keep(f"[{number}]", draft.said)]


def _keep(items: str, said: str) -> Art:
    return Art(f"Which of {items} {said}?", Filter((items,), said))


def _add_judgement(draft: Draft, children: list[Art], numbers: dict[int, int]) -> list[Art]:
    """The nodes so far, and what is asked of their answers."""
    operation, said, ends = draft.operation.split(" ")[0], draft.said, [numbers[id(root)] for root in draft.roots]
    if operation in ("count_is", "count_after", "which_is", "which_after"):
        [items] = (_show_term(arg, numbers) for arg in draft.roots[0].args)
        kept = [*children[: ends[0] - 1], _keep(items, said)]
        return kept if operation.startswith("which") else [*kept, trees.ask_how_many(ends[0])]
    if operation == "count":
        return [*children, trees.ask_how_many(ends[0])]
    if operation == "same":
        return [*children, trees.ask_same(draft.question, *ends)]
    if operation == "difference":
        return [*children, Art(f"How far apart are [{ends[0]}] and [{ends[1]}]?")]
    if operation == "intersect":
        return [*children, Art(f"What do [{ends[0]}] and [{ends[1]}] have in common?")]
    if operation.startswith("arg") and len(ends) == 1:
        return [*children, Art(f"Which of {_show_term(draft.roots[0].args[0], numbers)} {said}: [{ends[0]}]?")]
    if operation.startswith("arg"):
        source = operation.endswith("_source")
        things = [find_names(root)[0] if source else root.args[0] for root in draft.roots]
        shown = {_call_thing(thing, numbers): f"[{end}]" for thing, end in zip(things, ends, strict=True)}
        return [*children, trees.ask_which(said, shown)]
    return children


def _call_thing(term: Term, numbers: dict[int, int]) -> str:
    """A thing that is compared; by its name where the question has one, because the answer is that name."""
    return term.called if isinstance(term, NamedTerm) else _show_term(term, numbers)
