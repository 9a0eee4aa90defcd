"""Same or not, how far apart, and a thing against what is found from it."""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.world.comparisons import apart
from data_gen.world.drawing import Draft, Drawing
from data_gen.world.graph import Value
from data_gen.world.relations import relations
from data_gen.world.terms import Asked, Named, ask, echoing, ids, names_in, phrase

PERSONAL = {"he": ("he", "his"), "she": ("she", "her")}


def same(d: Drawing, depths: Sequence[int]) -> Draft | None:
    relation = d.rng.choice([r for r in d.singles if r.same])
    first = d.rng.choice(d.view.heads[relation.id])
    type = d.graph.entities[first].type
    value = d.view.tails(first, relation.id)[0]
    pool = d.view.holders[relation.id, value] if d.rng.random() < 0.6 else d.view.heads[relation.id]
    pool = [h for h in d.rng.sample(pool, min(60, len(pool))) if h != first and d.graph.entities[h].type == type]
    if not pool:
        return None
    terms = apart(d, relation, [first, d.rng.choice(pool)], depths)
    if len(terms) != 2 or set(names_in(terms[0])) & set(names_in(terms[1])):
        return None
    return _judged(d, terms, d.rng.choice(relation.same), [phrase(t.args[0], d.rng) for t in terms])


def _judged(d: Drawing, terms: Sequence[Asked], template: str, texts: Sequence[str]) -> Draft:
    verdict = "yes" if terms[0].values == terms[1].values else "no"
    text = template.replace("{a}", texts[0]).replace("{b}", texts[1])
    return Draft(text, echoing(terms, template), "same", (verdict,))


def difference(d: Drawing, depths: Sequence[int]) -> Draft | None:
    relation = d.rng.choice([r for r in d.singles if r.diff])
    pool = d.view.heads[relation.id]
    if len(pool) < 2:
        return None
    heads = d.rng.sample(pool, 2)
    if d.graph.entities[heads[0]].type != d.graph.entities[heads[1]].type:
        return None
    terms = apart(d, relation, heads, depths)
    keys = [v.key for t in terms for v in t.values if isinstance(v, Value)]
    if len(keys) != 2 or keys[0] == keys[1]:
        return None
    text = said = d.rng.choice(relation.diff)
    for mark, term in zip("ab", terms, strict=True):
        text = text.replace(f"{{{mark}}}", phrase(term.args[0], d.rng))
    return Draft(text, echoing(terms, said), "difference", (f"{abs(int(keys[0]) - int(keys[1])):,}",))


def with_own(d: Drawing, depth: int) -> Draft | None:
    """A thing compared with what is found from it: is she older than her husband?"""
    link = d.rng.choice(d.owned)
    head = d.rng.choice(d.view.heads[link.id])
    other = d.view.tails(head, link.id)[0]
    assert isinstance(other, int)
    common = [relations()[r] for r in d.view.single(head) if r in d.view.single(other)]
    common = [r for r in common if r.compare or r.same]
    top = d.up(head, depth, frozenset({other}))
    if not common or top is None or other == head or d.graph.entities[head].type != d.graph.entities[other].type:
        return None
    relation = d.rng.choice(common)
    linked = ask(d.view, link, (top,), d.rng)
    terms = [ask(d.view, relation, (t,), d.rng) for t in (top, linked) if t]
    found = [t for t in terms if t]
    if len(found) != 2 or linked is None:
        return None
    own = [p for p in linked.wording.phrases if p.startswith("{x's}")]
    if not own:
        return None
    second = Asked(relation, found[0].wording, found[1].args, found[1].values, found[1].type)
    found = [found[0], second]
    gender = d.graph.entities[head].gender
    texts = [phrase(top, d.rng), d.rng.choice(own).replace("{x's}", PERSONAL.get(gender, ("it", "its"))[1])]
    if relation.same and (not relation.compare or d.rng.random() < 0.5):
        return _judged(d, found, d.rng.choice(relation.same), texts)
    return _own_compared(d, found, texts)


def _own_compared(d: Drawing, terms: Sequence[Asked], texts: Sequence[str]) -> Draft | None:
    keys = [v.key for t in terms for v in t.values if isinstance(v, Value)]
    if len(keys) != 2 or keys[0] == keys[1]:
        return None
    which, said = d.rng.choice(terms[0].relation.compare)
    best = keys.index(min(keys) if which == "min" else max(keys))
    subject = terms[best].args[0]
    answer = subject.called if isinstance(subject, Named) else d.text(subject.values)[0]
    kind = d.graph.entities[ids(subject)[0]].type
    who = "Who" if kind == "person" else "Which one"
    text = d.rng.choice((f"{who} {said}, {texts[0]} or {texts[1]}?", f"{who} {said}: {texts[0]} or {texts[1]}?"))
    return Draft(text, echoing(terms, said), f"arg{which}", (answer,), said)
