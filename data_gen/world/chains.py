"""Questions with one answer at the end of a chain: leaves in a row, and relations between two found things."""

from __future__ import annotations

from data_gen.world.drawing import Draft, Drawing
from data_gen.world.relations import relations
from data_gen.world.terms import Asked, Term, ask, fill, ids, names_in, phrase


def chain(d: Drawing, length: int) -> Draft | None:
    relation, head = d.fact()
    inner = d.up(head, length - 1)
    term = ask(d.view, relation, (inner,), d.rng) if inner else None
    if term is None:
        return None
    return Draft(d.dressed(term), (term,), "none", d.text(term.values))


def joint(d: Drawing, left: int, right: int, after: int = 0) -> Draft | None:
    """A relation with two arguments, each `left` and `right` leaves deep, and `after` leaves on top."""
    relation = d.rng.choice(d.joints)
    fact = d.rng.choice(d.view.joint[relation.id])
    assert fact.second is not None
    one = d.up(fact.head, left, frozenset({fact.second}))
    two = d.up(fact.second, right, frozenset({fact.head}))
    if one is None or two is None or set(names_in(one)) & set(names_in(two)):
        return None
    term = ask(d.view, relation, (one, two), d.rng)
    return _topped(d, term, after)


def _topped(d: Drawing, term: Asked | None, after: int) -> Draft | None:
    for _ in range(after):
        if term is None or not isinstance(value := term.values[0], int):
            return None
        choices = [r for r in d.view.single(value) if relations()[r].tail[0] not in {"text"}]
        term = ask(d.view, relations()[d.rng.choice(choices)], (term,), d.rng) if choices else None
    return None if term is None else Draft(d.dressed(term), (term,), "none", d.text(term.values))


def shared_joint(d: Drawing, depth: int, longer: int = 0) -> Draft | None:
    """A relation whose two arguments are both found from one entity: how far is her birthplace from …"""
    relation = d.rng.choice(d.joints)
    fact = d.rng.choice(d.view.joint[relation.id])
    assert fact.second is not None
    heads = dict(d.view.into[fact.head])
    if longer:
        heads = {h2: r2 for h in heads for h2, r2 in d.view.into[h] if h != fact.second}
    base = [h for h, r in d.view.into[fact.second] if h in heads and h not in (fact.head, fact.second)]
    if not base:
        return None
    start = d.rng.choice(base)
    top = d.up(start, depth, frozenset({fact.head, fact.second}))
    if top is None:
        return None
    two = _toward(d, top, start, fact.second)
    one = _toward(d, top, start, fact.head) if not longer else _twice(d, top, start, fact.head, heads[start])
    if one is None or two is None:
        return None
    term = ask(d.view, relation, (one, two), d.rng)
    if term is None:
        return None
    return Draft(_with_pronoun(d, term, top, start), (term,), "none", d.text(term.values))


def _toward(d: Drawing, top: Term, start: int, goal: int) -> Asked | None:
    ways = [r for h, r in d.view.into[goal] if h == start]
    return ask(d.view, relations()[d.rng.choice(ways)], (top,), d.rng) if ways else None


def _twice(d: Drawing, top: Term, start: int, goal: int, first: str) -> Asked | None:
    middle = ask(d.view, relations()[first], (top,), d.rng)
    return _toward(d, middle, ids(middle)[0], goal) if middle and len(ids(middle)) == 1 else None


def _with_pronoun(d: Drawing, term: Asked, top: Term, start: int) -> str:
    """The question, the mention of `top` that comes second being a pronoun."""
    form, reference = term.wording.question, d.reference(start)
    first, second = (0, 1) if form.index("{x}") < form.index("{y}") else (1, 0)
    texts = {first: phrase(term.args[first], d.rng), second: d.about(term.args[second], top, reference)}
    return fill(form, [texts[0], texts[1]])
