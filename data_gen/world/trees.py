"""The tree of atomic operators of a drawn question, from its terms: each leaf is one step along its relation.

What the operation asks of the leaves' answers becomes a `[DR]` node; "how many of them …" filters the list and counts.
"""

from __future__ import annotations

from dataclasses import replace

from data_gen.trees import how_many, nodes, same, tree, which
from data_gen.world.drawing import Draft
from data_gen.world.terms import Asked, Named, Plan, Term, names_in
from revelator.plans import Expression
from revelator.plans.art import Art, Filter, Relate


def tree_of(question: str, expression: Expression, draft: Draft, made: Plan) -> str:
    """Canonical text. `expression` is the plan of `made`, the question itself for a single one."""
    numbers = {id(term): number for number, term in enumerate(made.terms, start=1)}
    calls = [_call(term, numbers) for term in made.terms]
    if len(calls) == 1:
        [leaf] = nodes(expression, calls)
        return tree(question, [leaf, how_many(1)] if draft.operation == "count" else [leaf])
    return tree(question, _judged(draft, nodes(expression, calls), numbers))


def _call(term: Asked, numbers: dict[int, int]) -> Relate:
    head, *second = (_shown(arg, numbers) for arg in term.args)
    return Relate(head, " ".join([term.relation.id, *second]))


def _shown(term: Term, numbers: dict[int, int]) -> str:
    return term.called if isinstance(term, Named) else f"[{numbers[id(term)]}]"


def _judged(draft: Draft, children: list[Art], numbers: dict[int, int]) -> list[Art]:
    """The leaves, and what is asked of their answers."""
    operation, said, ends = draft.operation.split(" ")[0], draft.said, [numbers[id(root)] for root in draft.roots]
    if operation in ("count_is", "count_after"):
        [items] = (_shown(arg, numbers) for arg in draft.roots[0].args)
        kept = replace(children[ends[0] - 1], question=f"Which of {items} {said}?", call=Filter((items,), said))
        return [*children[: ends[0] - 1], kept, how_many(ends[0])]
    if operation == "count":
        return [*children, how_many(ends[0])]
    if operation == "same":
        return [*children, same(draft.question, *ends)]
    if operation == "difference":
        return [*children, Art(f"How far apart are [{ends[0]}] and [{ends[1]}]?")]
    if operation == "intersect":
        return [*children, Art(f"What do [{ends[0]}] and [{ends[1]}] have in common?")]
    if operation.startswith("arg") and len(ends) == 1:
        return [*children, Art(f"Which of {_shown(draft.roots[0].args[0], numbers)} {said}: [{ends[0]}]?")]
    if operation.startswith("arg"):
        source = operation.endswith("_source")
        things = [names_in(root)[0] if source else root.args[0] for root in draft.roots]
        shown = {_shown(thing, numbers): f"[{end}]" for thing, end in zip(things, ends, strict=True)}
        return [*children, which(said, shown)]
    return children
