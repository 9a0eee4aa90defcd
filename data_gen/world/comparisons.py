"""Branches that are found apart, then compared: which comes first, is longest, has most; same or not; how far apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from data_gen.world.drawing import Draft, Drawing
from data_gen.world.graph import Relation, Value, Wording, load_relations
from data_gen.world.terms import AskedTerm, NamedTerm, Term, ask, echo_wording, find_names, list_entities, word_phrase

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
    keys = [v.key for t in terms for v in t.values if isinstance(v, Value)]
    if len(keys) != len(depths) or len(set(keys)) != len(keys):
        return None
    which, said = d.rng.choice(relation.compare)
    best = keys.index(min(keys) if which == "min" else max(keys))
    if len(depths) == 3:
        said = say_of_three(said)
    source = parallel and depths[0] == 2 and d.rng.random() < 0.7
    terms = _word_with_roles(terms, d) if source else terms
    if source and (text := _word_source_choice(d, terms, said)):
        first = find_names(terms[best])[0]
        return Draft(text, echo_wording(terms, said), f"arg{which}_source", (first.called,), said)
    text = word_choice(d, [t.args[0] for t in terms], type, said)
    winner = terms[best].args[0]
    answer = winner.called if isinstance(winner, NamedTerm) else d.list_texts(winner.values)[0]
    return Draft(text, echo_wording(terms, said), f"arg{which}", (answer,), said)


def find_apart(d: Drawing, relation: Relation, heads: Sequence[int], depths: Sequence[int]) -> list[AskedTerm]:
    inner = [d.reach(head, depth - 1, frozenset(heads) - {head}) for head, depth in zip(heads, depths, strict=True)]
    terms = [ask(d.view, relation, (term,), d.rng) for term in inner if term]
    return share_wording(d, [t for t in terms if t])


def _word_with_roles(terms: list[AskedTerm], d: Drawing) -> list[AskedTerm]:
    """The same terms, what is found first in the words of a role: `the director of …`."""
    middle = terms[0].args[0]
    assert isinstance(middle, AskedTerm)
    wordings = middle.relation.one or middle.relation.ask
    roles = [w for w in wordings if any(ROLE.fullmatch(p) for p in w.phrases)]
    return share_wording(d, terms, {middle.relation.id: d.rng.choice(roles)} if roles else {})


def share_wording(d: Drawing, terms: list[AskedTerm], given: dict[str, Wording] | None = None) -> list[AskedTerm]:
    """The same terms, those of one relation sharing one wording (the `given` one)."""
    wordings = {t.relation.id: t.wording for t in terms} | (given or {})

    def again(term: Term) -> Term:
        if isinstance(term, NamedTerm):
            return term
        wording = wordings.setdefault(term.relation.id, term.wording)
        same = wording if wording in (*term.relation.ask, *term.relation.one) else term.wording
        return AskedTerm(term.relation, same, tuple(again(a) for a in term.args), term.values, term.type)

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
    return share_wording(d, [t for t in found if t])


def word_choice(d: Drawing, subjects: Sequence[Term], type: str, said: str) -> str:
    rng = d.rng
    texts = [word_phrase(s, rng) for s in subjects]
    listed = f"{', '.join(texts[:-1])} or {texts[-1]}"
    anded = f"{', '.join(texts[:-1])} and {texts[-1]}"
    noun = f"which {type}" if type != "person" else rng.choice(("who", "which person"))
    opening = noun[0].upper() + noun[1:]
    frames = [
        f"{opening} {said}, {listed}?",
        f"{opening} {said}: {listed}?",
        f"Of {anded}, {noun.replace('who', 'which one')} {said}?",
    ]
    if len(texts) == 2:
        frames += [f"Between {anded}, {noun} {said}?", f"Which of {anded} {said}?", f"Which one {said}, {listed}?"]
    return rng.choice(frames)


def _word_source_choice(d: Drawing, terms: Sequence[AskedTerm], said: str) -> str | None:
    """`Which film has the director who was born first, A or B?`"""
    rng, middle = d.rng, terms[0].args[0]
    assert isinstance(middle, AskedTerm)
    roles = [found[1] for p in middle.wording.phrases if (found := ROLE.fullmatch(p))]
    names = [t.text for t in find_names(terms[0]) + find_names(terms[1])] if len(terms) == 2 else []
    if not roles or not names:
        return None
    role = rng.choice(roles)
    noun = find_names(terms[0])[0].entity.type
    who = "who" if middle.type == "person" else "that"
    listed, anded = " or ".join(names), " and ".join(names)
    frames = [
        f"Which {noun} has the {role} {who} {said}, {listed}?",
        f"Which {noun}'s {role} {said}, {listed}?",
        f"Of {anded}, which {noun} has the {role} {who} {said}?",
        f"Which of {anded} has the {role} {who} {said}?",
    ]
    return rng.choice(frames)


def draw_compare_counts(d: Drawing, depth: int) -> Draft | None:
    relation = d.rng.choice([r for r in d.lists if r.more])
    if len(pool := d.view.lists[relation.id]) < 2:
        return None
    subjects = [d.reach(head, depth) for head in d.rng.sample(pool, 2)]
    terms = [ask(d.view, relation, (s,), d.rng) for s in subjects if s]
    found = share_wording(d, [t for t in terms if t])
    if len(found) != 2 or len(found[0].values) == len(found[1].values):
        return None
    word = d.rng.choice(("more", "fewer"))
    sizes = [len(t.values) for t in found]
    best = found[sizes.index(max(sizes) if word == "more" else min(sizes))].args[0]
    answer = best.called if isinstance(best, NamedTerm) else d.list_texts(best.values)[0]
    kind = d.graph.entities[list_entities(best)[0]].type
    said = d.rng.choice(relation.more).replace("{more}", word)
    text = word_choice(d, [t.args[0] for t in found], kind, said)
    return Draft(text, echo_wording(found, said), f"arg{'max' if word == 'more' else 'min'}_count", (answer,), said)


def list_path(term: Term) -> list[str]:
    """The relations from the named entity to the term, first leaf first."""
    return [] if isinstance(term, NamedTerm) else [*list_path(term.args[0]), term.relation.id]


OF_THREE = {
    "older": "oldest",
    "younger": "youngest",
    "taller": "tallest",
    "shorter": "shortest",
    "longer": "longest",
    "later": "last",
    "earlier": "first",
    "more": "the most",
    "fewer": "the fewest",
    "less": "the least",
    "larger": "largest",
    "smaller": "smallest",
    "higher": "highest",
    "lower": "lowest",
}


def say_of_three(said: str) -> str:
    """What is said of one of two, said of one of three or more: `is older`, `is the oldest`."""
    text = " ".join(OF_THREE.get(word, word) for word in said.split())
    for word in ("oldest", "youngest", "tallest", "shortest", "longest"):
        text = text.replace(f"is {word}", f"is the {word}").replace(f"lasts {word}", f"lasts the {word}")
    return text.replace("the most recently", "most recently")


PERSONAL = {"he": ("he", "his"), "she": ("she", "her")}


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
    return _draft_verdict(d, terms, d.rng.choice(relation.same), [word_phrase(t.args[0], d.rng) for t in terms])


def _draft_verdict(d: Drawing, terms: Sequence[AskedTerm], template: str, texts: Sequence[str]) -> Draft:
    verdict = "yes" if terms[0].values == terms[1].values else "no"
    text = template.replace("{a}", texts[0]).replace("{b}", texts[1])
    return Draft(text, echo_wording(terms, template), "same", (verdict,))


def draw_difference(d: Drawing, depths: Sequence[int]) -> Draft | None:
    relation = d.rng.choice([r for r in d.singles if r.diff])
    pool = d.view.heads[relation.id]
    if len(pool) < 2:
        return None
    heads = d.rng.sample(pool, 2)
    if d.graph.entities[heads[0]].type != d.graph.entities[heads[1]].type:
        return None
    terms = find_apart(d, relation, heads, depths)
    keys = [v.key for t in terms for v in t.values if isinstance(v, Value)]
    if len(keys) != 2 or keys[0] == keys[1]:
        return None
    text = said = d.rng.choice(relation.diff)
    for mark, term in zip("ab", terms, strict=True):
        text = text.replace(f"{{{mark}}}", word_phrase(term.args[0], d.rng))
    return Draft(text, echo_wording(terms, said), "difference", (f"{abs(int(keys[0]) - int(keys[1])):,}",))


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
    linked = ask(d.view, link, (top,), d.rng)
    terms = [ask(d.view, relation, (t,), d.rng) for t in (top, linked) if t]
    found = [t for t in terms if t]
    if len(found) != 2 or linked is None:
        return None
    own = [p for p in linked.wording.phrases if p.startswith("{x's}")]
    if not own:
        return None
    second = AskedTerm(relation, found[0].wording, found[1].args, found[1].values, found[1].type)
    found = [found[0], second]
    gender = d.graph.entities[head].gender
    texts = [word_phrase(top, d.rng), d.rng.choice(own).replace("{x's}", PERSONAL.get(gender, ("it", "its"))[1])]
    if relation.same and (not relation.compare or d.rng.random() < 0.5):
        return _draft_verdict(d, found, d.rng.choice(relation.same), texts)
    return _draft_with_own(d, found, texts)


def _draft_with_own(d: Drawing, terms: Sequence[AskedTerm], texts: Sequence[str]) -> Draft | None:
    keys = [v.key for t in terms for v in t.values if isinstance(v, Value)]
    if len(keys) != 2 or keys[0] == keys[1]:
        return None
    which, said = d.rng.choice(terms[0].relation.compare)
    best = keys.index(min(keys) if which == "min" else max(keys))
    subject = terms[best].args[0]
    answer = subject.called if isinstance(subject, NamedTerm) else d.list_texts(subject.values)[0]
    kind = d.graph.entities[list_entities(subject)[0]].type
    who = "Who" if kind == "person" else "Which one"
    text = d.rng.choice((f"{who} {said}, {texts[0]} or {texts[1]}?", f"{who} {said}: {texts[0]} or {texts[1]}?"))
    return Draft(text, echo_wording(terms, said), f"arg{which}", (answer,), said)
