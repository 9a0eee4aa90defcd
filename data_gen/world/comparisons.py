"""Branches that are found apart, then compared: which comes first, is longest, has most; same or not; how far apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from data_gen.world.drawing import PRONOUNS, Draft, Drawing
from data_gen.world.graph import Relation, Value, Wording, load_relations
from data_gen.world.names import load_vocabulary
from data_gen.world.terms import AskedTerm, NamedTerm, Term, echo_wording, find_names, list_entities

EXTREMES = {"min": min, "max": max}
ROLE = re.compile(r"the ((?:[a-z]+ ){0,2}[a-z]+) (?:of|to) \{x\}")


def draw_compare(d: Drawing, depths: Sequence[int]) -> Draft | None:
    """Which of two or three things comes first, the value of each being `depth` leaves away."""
    relation = d.rng.choice([r for r in d.singles if r.compare])
    parallel = len(set(depths)) == 1
    type = d.rng.choice(relation.head)
    pool = [h for h in d.view.heads[relation.id] if d.graph.entities[h].type == type]
    if len(pool) < len(depths):
        return None
    heads = d.rng.sample(pool, len(depths))
    terms = _find_parallel(d, relation, heads, depths[0]) if parallel else find_apart(d, relation, heads, depths)
    keys = find_keys(terms, len(depths))
    if not keys:
        return None
    which, said = d.rng.choice(relation.compare)
    best = keys.index(EXTREMES[which](keys))
    if len(depths) == 3:
        said = write_superlative(said)
    source = parallel and depths[0] == 2 and d.rng.random() < 0.7
    terms = _choose_role_wordings(terms, d) if source else terms
    if source and (text := _write_source_choice(d, terms, said)):
        first = find_names(terms[best])[0]
        return Draft(text, echo_wording(terms, said), f"arg{which}_source", (first.called,), said)
    text = write_choice(d, [t.args[0] for t in terms], type, said)
    return Draft(text, echo_wording(terms, said), f"arg{which}", (d.name(terms[best].args[0]),), said)


def find_keys(terms: Sequence[AskedTerm], count: int) -> list[float]:
    """The keys by which the values of `count` terms are ordered; none unless each has one of its own."""
    keys = [v.key for t in terms for v in t.values if isinstance(v, Value)]
    return keys if len(keys) == len(set(keys)) == count else []


def find_apart(d: Drawing, relation: Relation, heads: Sequence[int], depths: Sequence[int]) -> list[AskedTerm]:
    inner = [d.reach(head, depth - 1, frozenset(heads) - {head}) for head, depth in zip(heads, depths, strict=True)]
    return share_wording(d.ask_each(relation, inner))


def _choose_role_wordings(terms: list[AskedTerm], d: Drawing) -> list[AskedTerm]:
    """The same terms, what is found first in the words of a role: `the director of …`."""
    middle = terms[0].args[0]
    assert isinstance(middle, AskedTerm)
    wordings = middle.relation.one or middle.relation.ask
    roles = [w for w in wordings if any(ROLE.fullmatch(p) for p in w.phrases)]
    return share_wording(terms, {middle.relation.id: d.rng.choice(roles)} if roles else {})


def share_wording(terms: list[AskedTerm], given: dict[str, Wording] | None = None) -> list[AskedTerm]:
    """The same terms, those of one relation sharing one wording (the `given` one)."""
    wordings = {t.relation.id: t.wording for t in terms} | (given or {})

    def again(term: Term) -> Term:
        if isinstance(term, NamedTerm):
            return term
        wording = wordings.setdefault(term.relation.id, term.wording)
        same = wording if wording in (*term.relation.ask, *term.relation.one) else term.wording
        return replace(term, wording=same, args=tuple(again(a) for a in term.args))

    return [t for t in map(again, terms) if isinstance(t, AskedTerm)]


def _find_parallel(d: Drawing, relation: Relation, heads: Sequence[int], depth: int) -> list[AskedTerm]:
    """Terms that reach `relation` by the same path from things of one type."""
    first = d.reach(heads[0], depth - 1)
    if first is None:
        return []
    path = list_path(first)
    if not path:
        return find_apart(d, relation, heads, [depth] * len(heads))
    starts = [find_names(first)[0].entity.id]
    kind = d.graph.entities[starts[0]].type
    pool = [h for h in d.view.heads[path[0]] if h not in starts and d.graph.entities[h].type == kind]
    found = [d.follow(starts[0], [*path, relation.id])]
    for start in d.rng.sample(pool, min(len(pool), 12)):
        if len(found) < len(heads) and (term := d.follow(start, [*path, relation.id])):
            found.append(term)
    return share_wording([t for t in found if t])


def write_choice(d: Drawing, subjects: Sequence[Term], type: str, said: str) -> str:
    texts = [d.write_phrase(s) for s in subjects]
    noun = f"which {type}" if type != "person" else d.rng.choice(("who", "which person"))
    return d.write_frame(
        "choice of two" if len(texts) == 2 else "choice of three",
        noun=noun,
        Noun=noun[0].upper() + noun[1:],
        one=noun.replace("who", "which one"),
        listed=f"{', '.join(texts[:-1])} or {texts[-1]}",
        anded=f"{', '.join(texts[:-1])} and {texts[-1]}",
        said=said,
    )


def _write_source_choice(d: Drawing, terms: Sequence[AskedTerm], said: str) -> str | None:
    """`Which film has the director who was born first, A or B?`"""
    middle = terms[0].args[0]
    assert isinstance(middle, AskedTerm)
    roles = [found[1] for p in middle.wording.phrases if (found := ROLE.fullmatch(p))]
    if not roles or len(terms) != 2:
        return None
    names = [name for term in terms for name in find_names(term)]
    return d.write_frame(
        "source",
        role=d.rng.choice(roles),
        noun=names[0].entity.type,
        who="who" if middle.type == "person" else "that",
        listed=" or ".join(name.text for name in names),
        anded=" and ".join(name.text for name in names),
        said=said,
    )


def draw_compare_counts(d: Drawing, depth: int) -> Draft | None:
    relation = d.rng.choice([r for r in d.lists if r.more])
    if len(pool := d.view.lists[relation.id]) < 2:
        return None
    subjects = [d.reach(head, depth) for head in d.rng.sample(pool, 2)]
    found = share_wording(d.ask_each(relation, subjects))
    if len(found) != 2 or len(found[0].values) == len(found[1].values):
        return None
    word = d.rng.choice(("more", "fewer"))
    which = "max" if word == "more" else "min"
    sizes = [len(t.values) for t in found]
    best = found[sizes.index(EXTREMES[which](sizes))].args[0]
    kind = d.graph.entities[list_entities(best)[0]].type
    said = d.rng.choice(relation.more).replace("{more}", word)
    text = write_choice(d, [t.args[0] for t in found], kind, said)
    return Draft(text, echo_wording(found, said), f"arg{which}_count", (d.name(best),), said)


def list_path(term: Term) -> list[str]:
    """The relations from the named entity to the term, first leaf first."""
    return [] if isinstance(term, NamedTerm) else [*list_path(term.args[0]), term.relation.id]


def write_superlative(said: str) -> str:
    """What is said of one of two, said of one of three or more: `is older`, `is the oldest`."""
    text = " ".join(load_vocabulary()["of three"].get(word, word) for word in said.split())
    for word in ("oldest", "youngest", "tallest", "shortest", "longest"):
        text = text.replace(f"is {word}", f"is the {word}").replace(f"lasts {word}", f"lasts the {word}")
    return text.replace("the most recently", "most recently")


def draw_same(d: Drawing, depths: Sequence[int]) -> Draft | None:
    relation = d.rng.choice([r for r in d.singles if r.same])
    first = d.rng.choice(d.view.heads[relation.id])
    type = d.graph.entities[first].type
    value = d.view.list_tails(first, relation.id)[0]
    pool = d.view.holders[relation.id, value] if d.rng.random() < 0.6 else d.view.heads[relation.id]
    pool = [h for h in d.rng.sample(pool, min(60, len(pool))) if h != first and d.graph.entities[h].type == type]
    if not pool:
        return None
    terms = find_apart(d, relation, [first, d.rng.choice(pool)], depths)
    if len(terms) != 2 or set(find_names(terms[0])) & set(find_names(terms[1])):
        return None
    template = d.rng.choice(relation.same)
    return _draft_verdict(terms, template, d.write_about_both(template, terms))


def _draft_verdict(terms: Sequence[AskedTerm], template: str, text: str) -> Draft:
    return Draft(text, echo_wording(terms, template), "equal", ("yes" if terms[0].values == terms[1].values else "no",))


def draw_difference(d: Drawing, depths: Sequence[int]) -> Draft | None:
    relation = d.rng.choice([r for r in d.singles if r.diff])
    pool = d.view.heads[relation.id]
    if len(pool) < 2:
        return None
    heads = d.rng.sample(pool, 2)
    if d.graph.entities[heads[0]].type != d.graph.entities[heads[1]].type:
        return None
    terms = find_apart(d, relation, heads, depths)
    keys = find_keys(terms, 2)
    if not keys:
        return None
    said = d.rng.choice(relation.diff)
    answer = f"{abs(int(keys[0]) - int(keys[1])):,}"
    return Draft(d.write_about_both(said, terms), echo_wording(terms, said), "difference", (answer,))


def draw_with_own(d: Drawing, depth: int) -> Draft | None:
    """A thing compared with what is found from it: is she older than her husband?"""
    link = d.rng.choice(d.owned)
    head = d.rng.choice(d.view.heads[link.id])
    other = d.view.list_tails(head, link.id)[0]
    assert isinstance(other, int)
    common = [load_relations()[r] for r in d.view.list_single(head) if r in d.view.list_single(other)]
    common = [r for r in common if r.compare or r.same]
    top = d.reach(head, depth, frozenset({other}))
    if not common or top is None or other == head or d.graph.entities[head].type != d.graph.entities[other].type:
        return None
    relation = d.rng.choice(common)
    linked = d.ask(link, top)
    found = d.ask_each(relation, [top, linked])
    own = [p for p in linked.wording.phrases if p.startswith("{x's}")] if linked else []
    if len(found) != 2 or not own:
        return None
    found = [found[0], replace(found[1], wording=found[0].wording)]
    *_, possessive = PRONOUNS[d.graph.entities[head].gender]
    texts = [d.write_phrase(top), d.rng.choice(own).replace("{x's}", possessive)]
    if relation.same and (not relation.compare or d.rng.random() < 0.5):
        template = d.rng.choice(relation.same)
        return _draft_verdict(found, template, template.replace("{a}", texts[0]).replace("{b}", texts[1]))
    return _draft_with_own(d, found, " or ".join(texts))


def _draft_with_own(d: Drawing, terms: Sequence[AskedTerm], listed: str) -> Draft | None:
    keys = find_keys(terms, 2)
    if not keys:
        return None
    which, said = d.rng.choice(terms[0].relation.compare)
    subject = terms[keys.index(EXTREMES[which](keys))].args[0]
    kind = d.graph.entities[list_entities(subject)[0]].type
    text = d.write_frame("own", who="Who" if kind == "person" else "Which one", said=said, listed=listed)
    return Draft(text, echo_wording(terms, said), f"arg{which}", (d.name(subject),), said)
