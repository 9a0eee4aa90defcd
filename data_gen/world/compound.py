"""Several answers in one question: two facts of a thing, two unrelated questions, and compound questions of two to four
that need not know of one another (HANRAG, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from data_gen.world.documents import COUNTS, join_items
from data_gen.world.drawing import OF, PRONOUNS, Draft, Drawing, find_pronoun, lower
from data_gen.world.graph import load_relations
from data_gen.world.names import load_vocabulary
from data_gen.world.terms import (
    AskedTerm,
    NamedTerm,
    Term,
    echo_wording,
    fill,
    find_names,
    list_entities,
)


def draw_compound(drawing: Drawing) -> Draft | None:
    """Several facts of one entity, one fact of several entities, or unrelated facts."""
    count = drawing.rng.choices((2, 3, 4), (6, 3, 1))[0]
    roll = drawing.rng.random()
    if roll < 0.5:
        return _draft_of_one(drawing, count)
    return _draft_of_several(drawing, count) if roll < 0.75 else _draft_unrelated(drawing, count)


def _draft(drawing: Drawing, text: str, terms: Sequence[AskedTerm]) -> Draft:
    return Draft(text, tuple(terms), "both", tuple(a for t in terms for a in drawing.list_texts(t.values)))


def _draft_of_one(drawing: Drawing, count: int) -> Draft | None:
    rng = drawing.rng
    _, head = drawing.draw_fact()
    choices = drawing.view.list_single(head)
    choices += [r.id for r in drawing.lists if head in drawing.view.lists[r.id]] if rng.random() < 0.2 else []
    if len(choices) < count:
        return None
    subject = drawing.mention(head)
    terms = [term for name in rng.sample(choices, count) if (term := drawing.ask(name, subject))]
    if len({t.relation.name for t in terms}) < count or len({t.wording.question for t in terms}) < count:
        return None
    nouns = [p for t in terms for p in t.wording.phrases if p.startswith("the ") and p.endswith(" of {x}")][:count]
    whole = [any(n in t.wording.phrases for n in nouns) for t in terms]
    if all(whole) and len(nouns) == count and rng.random() < 0.6:
        listed = join_items([n.removesuffix(" of {x}") for n in nouns])
        return _draft(drawing, drawing.write_frame("facts of one", asked=listed, subject=subject.text), terms)
    return _draft(drawing, _join_questions(drawing, _ask_with_pronouns(drawing, terms)), terms)


def _ask_with_pronouns(drawing: Drawing, terms: list[AskedTerm]) -> list[str]:
    """The questions, those after the first at times with a pronoun for the subject."""
    rng, subject = drawing.rng, terms[0].args[0]
    assert isinstance(subject, NamedTerm)
    he, him, his = PRONOUNS[subject.entity.gender]
    repeat = rng.random() < 0.3
    texts = [drawing.write_question(terms[0])]
    for term in terms[1:]:
        form = term.wording.question if repeat else OF.sub(rf"{his} \1", term.wording.question)
        as_object = any(f"{word} {{x}}" in form for word in load_vocabulary()["objects"]) or form.endswith("{x}?")
        texts.append(fill(form, [subject.text if repeat else him if as_object else he]))
    return texts


def _draft_of_several(drawing: Drawing, count: int) -> Draft | None:
    """One relation asked of several entities, together (`the directors of A and B`) or one after the other."""
    rng = drawing.rng
    relation, head = drawing.draw_fact()
    kind = drawing.graph.entities[head].type
    heads = drawing.view.heads[relation.id]
    pool = [h for h in rng.sample(heads, min(30, len(heads))) if drawing.graph.entities[h].type == kind]
    if len(pool) < count:
        return None
    subjects = [drawing.mention(h) for h in pool[:count]]
    terms = drawing.ask_each(relation, subjects)
    if len(terms) < count:
        return None
    terms = [replace(term, wording=terms[0].wording) for term in terms]
    if relation.all and rng.random() < 0.6:
        asked = relation.all.replace("{x}", join_items([s.text for s in subjects]))
        text = drawing.write_frame("fact of all", who=find_pronoun(terms[0]), asked=asked)
        return _draft(drawing, text, echo_wording(terms, relation.all))
    if relation.id not in load_vocabulary()["shareable"] or rng.random() < 0.4:
        return _draft(drawing, _join_questions(drawing, [drawing.write_question(t) for t in terms]), terms)
    asked = join_items([drawing.write_phrase(t) for t in terms])
    return _draft(drawing, drawing.write_frame("fact of several", asked=asked), terms)


def _draft_unrelated(drawing: Drawing, count: int) -> Draft | None:
    facts = [drawing.draw_fact() for _ in range(count)]
    if len({head for _, head in facts}) < count:
        return None
    subjects = [(relation, drawing.mention(head)) for relation, head in facts]
    terms = [term for relation, subject in subjects if (term := drawing.ask(relation, subject))]
    if len(terms) < count:
        return None
    return _draft(drawing, _join_questions(drawing, [drawing.write_question(t) for t in terms]), terms)


def _join_questions(drawing: Drawing, questions: list[str]) -> str:
    """Several questions as one text."""
    clauses = [lower(q.removesuffix("?")) for q in questions]
    first = questions[0].removesuffix("?")
    roll = drawing.rng.random()
    if roll < 0.15:
        return " ".join(questions)
    if roll < 0.25:
        return f"Please answer {COUNTS[len(questions)]} questions: {join_items(clauses)}?"
    if len(clauses) == 2:
        return drawing.write_frame("link", first=first, second=clauses[1])
    return f"{', '.join([first, *clauses[1:-1]])}, and {clauses[-1]}?"


def draw_two_facts(d: Drawing, depth: int, deeper: int = 0) -> Draft | None:
    """Two facts of one entity that has to be found first; the second `deeper` leaves further."""
    relation, head = d.draw_fact()
    others = [r for r in d.view.list_single(head) if r != relation.id and load_relations()[r].name != relation.name]
    top = d.reach(head, depth)
    if top is None or not others:
        return None
    first = d.ask(relation, top)
    base: Term | None = top
    if deeper:
        links = [r for r in others if not load_relations()[r].is_value]
        base = d.ask(d.rng.choice(links), top) if links else None
        if base is None or len(list_entities(base)) != 1:
            return None
        others = d.view.list_single(list_entities(base)[0])
    second = d.ask(d.rng.choice(others), base) if others else None
    if first is None or second is None or first.values == second.values or head in second.values:
        return None
    answers = d.list_texts((*first.values, *second.values))
    return Draft(_write_two(d, first, second, top, head), (first, second), "both", answers)


def _write_two(d: Drawing, first: AskedTerm, second: AskedTerm, top: Term, head: int) -> str:
    nouns = [find_noun(t) for t in (first, second)]
    if all(nouns) and second.args[0] is top and d.rng.random() < 0.4:
        return d.write_frame("two facts", asked=f"the {nouns[0]} and the {nouns[1]} of {d.write_phrase(top)}")
    inner = d.write_about(second.args[0], top, f"that {d.graph.entities[head].type}")
    follow = lower(fill(second.wording.question, [inner]))
    return f"{d.write_question(first).removesuffix('?')}, {d.rng.choice(('and', 'and'))} {follow}"


def draw_pair(d: Drawing, left: Draft | None, right: Draft | None) -> Draft | None:
    """Two questions that need not know of one another, in one sentence."""
    if left is None or right is None or not all(d.question.endswith("?") for d in (left, right)):
        return None
    names = [{n.entity.id for r in d.roots for n in find_names(r)} for d in (left, right)]
    if names[0] & names[1] or left.question == right.question:
        return None
    text = d.write_frame("pair", first=left.question.removesuffix("?"), second=lower(right.question))
    return Draft(text, (*left.roots, *right.roots), "both", (*left.answers, *right.answers))


def find_noun(term: AskedTerm) -> str | None:
    """`birthplace` of `the birthplace of {x}`."""
    found = [p for p in term.wording.phrases if p.startswith("the ") and p.endswith(" of {x}") and p.count(" ") < 8]
    return found[0][4:].removesuffix(" of {x}") if found else None
