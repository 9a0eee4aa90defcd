"""Questions along one chain of leaves, and over lists: each member, the extreme one, how many, what two lists share.

A joint is a relation with two arguments, such as the distance between two cities.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.world.comparisons import EXTREMES, share_wording, write_superlative
from data_gen.world.drawing import Draft, Drawing, find_pronoun
from data_gen.world.graph import Relation, Value, load_relations
from data_gen.world.terms import AskedTerm, Term, echo_wording, fill, find_names, list_entities


def draw_chain(d: Drawing, length: int) -> Draft | None:
    relation, head = d.draw_fact()
    return _draft_one(d, d.ask(relation, d.reach(head, length - 1)))


def _draft_one(d: Drawing, term: AskedTerm | None) -> Draft | None:
    return Draft(d.write_request(term), (term,), "none", d.list_texts(term.values)) if term else None


def draw_joint(d: Drawing, left: int, right: int, after: int = 0) -> Draft | None:
    """Draws a question about a joint whose arguments are `left` and `right` leaves deep, with `after` leaves on top."""
    relation = d.rng.choice(d.joints)
    fact = d.rng.choice(d.view.joint[relation.id])
    assert fact.second is not None
    one = d.reach(fact.head, left, frozenset({fact.second}))
    two = d.reach(fact.second, right, frozenset({fact.head}))
    if one is None or two is None or set(find_names(one)) & set(find_names(two)):
        return None
    term = d.ask(relation, one, two)
    for _ in range(after):
        if term is None or not isinstance(value := term.values[0], int):
            return None
        choices = [r for r in d.view.list_single(value) if load_relations()[r].tail[0] != "text"]
        term = d.ask(d.rng.choice(choices), term) if choices else None
    return _draft_one(d, term)


def draw_shared_joint(d: Drawing, depth: int, two_hops: bool = False) -> Draft | None:
    """Draws a question about a joint whose arguments are both found from one entity: how far is her birthplace from …

    The entity is `depth` leaves deep. With `two_hops` the first argument is two relations away from it, not one.
    """
    relation = d.rng.choice(d.joints)
    fact = d.rng.choice(d.view.joint[relation.id])
    assert fact.second is not None
    heads = dict(d.view.into[fact.head])
    if two_hops:
        heads = {h2: r2 for h in heads for h2, r2 in d.view.into[h] if h != fact.second}
    base = [h for h, r in d.view.into[fact.second] if h in heads and h not in (fact.head, fact.second)]
    if not base:
        return None
    start = d.rng.choice(base)
    top = d.reach(start, depth, frozenset({fact.head, fact.second}))
    if top is None:
        return None
    two = _find_toward(d, top, start, fact.second)
    one = _find_in_two(d, top, fact.head, heads[start]) if two_hops else _find_toward(d, top, start, fact.head)
    term = d.ask(relation, one, two)
    if term is None:
        return None
    return Draft(_write_with_pronoun(d, term, top, start), (term,), "none", d.list_texts(term.values))


def _find_toward(d: Drawing, top: Term, start: int, goal: int) -> AskedTerm | None:
    ways = [r for h, r in d.view.into[goal] if h == start]
    return d.ask(d.rng.choice(ways), top) if ways else None


def _find_in_two(d: Drawing, top: Term, goal: int, first: str) -> AskedTerm | None:
    middle = d.ask(first, top)
    found = list_entities(middle) if middle else ()
    return _find_toward(d, middle, found[0], goal) if middle and len(found) == 1 else None


def _write_with_pronoun(d: Drawing, term: AskedTerm, top: Term, start: int) -> str:
    """The question, the mention of `top` that comes second being a pronoun."""
    form, reference = term.wording.question, d.refer_to(start)
    first, second = (0, 1) if form.index("{x}") < form.index("{y}") else (1, 0)
    texts = {first: d.write_phrase(term.args[first]), second: d.write_about(term.args[second], top, reference)}
    return fill(form, [texts[0], texts[1]])


def draw_list_term(d: Drawing, depth: int, wording: str = "") -> AskedTerm | None:
    """A list of something that is `depth` leaves deep, of a relation that has this wording."""
    relation = d.rng.choice([r for r in d.lists if not wording or getattr(r, wording)])
    return d.ask(relation, d.reach(d.rng.choice(d.view.lists[relation.id]), depth))


def draw_fan_out(d: Drawing, depth: int, kind: str, chain: int = 1) -> Draft | None:
    """A list, and a question about each of its members: `kind` each, extreme, count_is, count_after, which_is or
    which_after."""
    items = draw_list_term(d, depth)
    if items is None:
        return None
    members = list_entities(items)
    options = [r for r in d.view.list_single(members[0]) if all(r in d.view.list_single(i) for i in members)]
    table = load_relations()
    wanted = {"extreme": "compare", "is": "where", "after": "after"}.get(kind.rpartition("_")[2])
    options = [r for r in options if not wanted or getattr(table[r], wanted)]
    term = d.ask(d.rng.choice(options), items) if options else None
    if term is None or set(members) & set(list_entities(term)):
        return None
    if kind == "each":
        return _draft_each(d, term, chain)
    return _draft_extreme(d, term, items) if kind == "extreme" else _draft_condition(d, term, items, kind)


def _draft_each(d: Drawing, term: AskedTerm, chain: int) -> Draft | None:
    for _ in range(chain - 1):
        options = [r for v in list_entities(term) for r in d.view.list_single(v)]
        shared = sorted({r for r in options if options.count(r) == len(term.values)}) if list_entities(term) else []
        following = d.ask(d.rng.choice(shared), term) if shared else None
        if following is None:
            return None
        term = following
    plural = d.write_phrase(_find_innermost(term))
    if chain == 1 and term.relation.all and d.rng.random() < 0.5:
        text = d.write_frame("each", who=find_pronoun(term), asked=term.relation.all.replace("{x}", plural))
        (term,) = echo_wording([term], term.relation.all)
    else:
        text = _write_each(d, term, f"each of {plural}")
    return Draft(text, (term,), "list", d.list_texts(term.values))


def _write_each(d: Drawing, term: AskedTerm, subject: str) -> str:
    def inner(t: Term) -> str:
        assert isinstance(t, AskedTerm)
        if t.relation.is_list and len(t.values) > 1:
            return subject
        usable = [p for p in t.wording.phrases if "'s}" not in p]
        return fill(d.rng.choice(usable or list(t.wording.phrases)), [inner(t.args[0])])

    return fill(term.wording.question, [inner(term.args[0])])


def _draft_extreme(d: Drawing, term: AskedTerm, items: AskedTerm) -> Draft | None:
    pairs = [
        (v.key, i) for i in list_entities(items) for v in d.view.list_tails(i, term.relation.id) if isinstance(v, Value)
    ]
    keys = sorted(k for k, _ in pairs)
    which, said = d.rng.choice(term.relation.compare)
    changed = write_superlative(said)
    if len(set(keys)) != len(keys):
        return None
    best = EXTREMES[which](pairs)[1]
    text = d.write_frame("extreme", plural=d.write_phrase(items), said=changed)
    return Draft(text, echo_wording([term], said), f"arg{which}", d.list_texts([best]), changed)


def _draft_condition(d: Drawing, term: AskedTerm, items: AskedTerm, kind: str) -> Draft | None:
    """How many of a list, or which of it, meet a condition."""
    members, plural, counts = list_entities(items), d.write_phrase(items), kind.startswith("count")
    argument, said, met = draw_condition(d, term.relation, kind, members)
    if not counts and len(met) in (0, len(members)):
        return None
    text = f"{'How many' if counts else 'Which'} of {plural} {said}?"
    answers = (str(len(met)),) if counts else d.list_texts(met)
    return Draft(text, echo_wording([term], said), f"{kind} {argument}", answers, said)


def draw_condition(d: Drawing, relation: Relation, kind: str, members: Sequence[int]) -> tuple[str, str, list[int]]:
    """The argument of a condition, what it says, and the members that meet it. A `kind` that ends in "is" asks for a
    value, one that ends in "after" for a later year."""
    known = {member: d.view.list_tails(member, relation.id)[0] for member in members}
    if kind.endswith("is"):
        value = d.rng.choice(list(known.values()))
        argument = d.graph.text(value)
        said = d.rng.choice(relation.where).replace("{y}", argument)
        return argument, said, [member for member in members if known[member] == value]
    years = {member: int(value.key) for member, value in known.items() if isinstance(value, Value)}
    threshold = d.rng.choice(sorted(years.values())) - d.rng.choice((0, 1, 3))
    said = d.rng.choice(relation.after).replace("{n}", str(threshold))
    return str(threshold), said, [member for member in members if years[member] > threshold]


def draw_either(d: Drawing, depth: int, kind: str) -> Draft | None:
    """What belongs to one of two entities, each `depth` leaves deep: how many there are (`kind` count), or which of it
    meet a condition (is, after)."""
    relation = d.rng.choice([r for r in d.lists if len(d.view.lists[r.id]) > 1])
    first = d.ask(relation, d.reach(d.rng.choice(d.view.lists[relation.id]), depth))
    second = d.ask(relation, d.reach(d.rng.choice(d.view.lists[relation.id]), depth))
    found = share_wording([term for term in (first, second) if term])
    members = list(dict.fromkeys(entity for term in found for entity in list_entities(term)))
    phrases = [p for p in found[0].wording.phrases if "'s}" not in p] if found else []
    if len(found) != 2 or not phrases or set(found[0].values) & set(found[1].values):
        return None
    names, phrase = [d.write_phrase(term.args[0]) for term in found], d.rng.choice(phrases)
    plural = fill(phrase, [" or ".join(names)])
    listed = f"What are {fill(phrase, [' and '.join(names)])}?"  # "or" would ask for one of two answers
    if kind == "count":
        text = f"How many {plural.removeprefix('the ')} are there?"
        return Draft(text, tuple(found), "either count", (str(len(members)),), listed=listed)
    shared = [load_relations()[r] for r in d.view.list_single(members[0])]
    wanted = [r for r in shared if getattr(r, {"is": "where", "after": "after"}[kind])]
    wanted = [r for r in wanted if all(r.id in d.view.list_single(member) for member in members)]
    if not wanted:
        return None
    argument, said, met = draw_condition(d, d.rng.choice(wanted), kind, members)
    if len(met) in (0, len(members)):
        return None
    text = f"Which of {plural} {said}?"
    return Draft(text, tuple(found), f"either {kind} {argument}", d.list_texts(met), said, listed)


def draw_count(d: Drawing, depth: int) -> Draft | None:
    term = draw_list_term(d, depth, "count")
    if term is None:
        return None
    said = d.rng.choice(term.relation.count)
    text = fill(said, [d.write_phrase(term.args[0])])
    return Draft(text, echo_wording([term], said), "count", (str(len(term.values)),))


def draw_intersect(d: Drawing) -> Draft | None:
    relation = d.rng.choice([r for r in d.lists if r.common])
    first = d.rng.choice(d.view.lists[relation.id])
    mine = d.view.list_tails(first, relation.id)
    pool = [h for h in d.rng.sample(d.view.lists[relation.id], min(60, len(d.view.lists[relation.id]))) if h != first]
    meeting = [h for h in pool if len(set(d.view.list_tails(h, relation.id)) & set(mine)) == 1]
    if not meeting:
        return None
    found = share_wording([t for h in (first, d.rng.choice(meeting)) if (t := d.ask(relation, d.mention(h)))])
    if len(found) != 2:
        return None
    shared = [v for v in found[0].values if v in found[1].values]
    said = d.rng.choice(relation.common)
    return Draft(d.write_about_both(said, found), echo_wording(found, said), "intersect", d.list_texts(shared))


def _find_innermost(term: AskedTerm) -> AskedTerm:
    """The list that a term fans out over."""
    inner = term.args[0]
    if isinstance(inner, AskedTerm) and not (term.relation.is_list and len(term.values) > 1):
        return _find_innermost(inner) if not (inner.relation.is_list and len(inner.values) > 1) else inner
    return term
