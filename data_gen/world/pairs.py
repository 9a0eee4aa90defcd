"""Two answers in one question: two facts of a thing that has to be found, and two unrelated questions."""

from __future__ import annotations

from data_gen.world.drawing import Draft, Drawing, lower
from data_gen.world.relations import relations
from data_gen.world.terms import Asked, Term, ask, fill, ids, names_in, phrase, question


def two_facts(d: Drawing, depth: int, deeper: int = 0) -> Draft | None:
    """Two facts of one entity that has to be found first; the second `deeper` leaves further."""
    relation, head = d.fact()
    others = [r for r in d.view.single(head) if r != relation.id and relations()[r].name != relation.name]
    top = d.up(head, depth)
    if top is None or not others:
        return None
    first = ask(d.view, relation, (top,), d.rng)
    base: Term | None = top
    if deeper:
        links = [r for r in others if not relations()[r].is_value]
        base = ask(d.view, relations()[d.rng.choice(links)], (top,), d.rng) if links else None
        if base is None or len(ids(base)) != 1:
            return None
        others = d.view.single(ids(base)[0])
    second = ask(d.view, relations()[d.rng.choice(others)], (base,), d.rng) if base and others else None
    if first is None or second is None or first.values == second.values or head in second.values:
        return None
    answers = d.text((*first.values, *second.values))
    return Draft(_two(d, first, second, top, head), (first, second), "both", answers)


def _two(d: Drawing, first: Asked, second: Asked, top: Term, head: int) -> str:
    rng = d.rng
    nouns = [noun_of(t) for t in (first, second)]
    if all(nouns) and second.args[0] is top and rng.random() < 0.4:
        text = f"the {nouns[0]} and the {nouns[1]} of {phrase(top, rng)}"
        return rng.choice((f"What are {text}?", f"Give {text}.", f"Name {text}."))
    kind = d.graph.entities[head].type
    reference = f"that {kind}"
    inner = d.about(second.args[0], top, reference)
    follow = lower(fill(second.wording.question, [inner]))
    return f"{question(first, rng).removesuffix('?')}, {rng.choice(('and', 'and'))} {follow}"


def pair(d: Drawing, left: Draft | None, right: Draft | None) -> Draft | None:
    """Two questions that need not know of one another, in one sentence."""
    if left is None or right is None or not all(d.question.endswith("?") for d in (left, right)):
        return None
    names = [{n.entity.id for r in d.roots for n in names_in(r)} for d in (left, right)]
    if names[0] & names[1] or left.question == right.question:
        return None
    text = d.rng.choice(("{}, and {}", "{}; also, {}", "{}, and in addition, {}")).format(
        left.question.removesuffix("?"), lower(right.question)
    )
    return Draft(text, (*left.roots, *right.roots), "both", (*left.answers, *right.answers))


def noun_of(term: Asked) -> str | None:
    """`birthplace` of `the birthplace of {x}`."""
    found = [p for p in term.wording.phrases if p.startswith("the ") and p.endswith(" of {x}") and p.count(" ") < 8]
    return found[0][4:].removesuffix(" of {x}") if found else None
