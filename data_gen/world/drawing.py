"""What questions are drawn with: one view, one source of randomness, and the parts that all kinds share."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from data_gen.world.documents import View
from data_gen.world.graph import Relation, Value, load_relations
from data_gen.world.names import load_vocabulary
from data_gen.world.terms import (
    AskedTerm,
    NamedTerm,
    Term,
    describe_entity,
    ends_open,
    fill,
    list_entities,
    list_inputs,
)

PRONOUNS = {"he": ("he", "him", "his"), "she": ("she", "her", "her"), "": ("it", "it", "its")}
OF_OBJECTS = {him: (he, his) for he, him, his in PRONOUNS.values()}
OF = re.compile(r"\bthe ([a-z ]{1,80}) of \{x\}")


@dataclass(frozen=True)
class Draft:
    """A question before its plan is built: `roots` are the terms that the plan computes, in order; `said` is what a
    comparison or a condition says of a thing (`was born first`), "" where nothing is compared; `listed` asks for the
    list that two roots make up together."""

    question: str
    roots: tuple[AskedTerm, ...]
    ending: str
    answers: tuple[str, ...]
    said: str = ""
    listed: str = ""


class Drawing:
    """Draws questions from one view with one source of randomness.

    Every function over it draws one question at random, or None where the draw led nowhere; the caller draws again.
    """

    def __init__(self, view: View, rng: random.Random, described: float = 0.0) -> None:
        """`described` is the share of names that say what they name, such as "the painter Ada Quill"."""
        self.view = view
        self.rng = rng
        self.described = described
        self.graph = view.graph
        table = load_relations()
        self.singles = [r for r in table.values() if view.heads[r.id] and not r.second]
        self.owned = [r for r in self.singles if not r.is_value and any("{x's}" in p for w in r.ask for p in w.phrases)]
        self.lists = [r for r in table.values() if view.lists[r.id]]
        self.joints = [r for r in table.values() if view.joint[r.id]]

    def mention(self, entity: int) -> NamedTerm:
        """A mention: the title, or at times `the film Marrow Lane`."""
        found = self.graph.entities[entity]
        is_plain = found.title == found.name
        may_say = found.type != "person" and found.title.endswith(f"({found.noun})")
        if is_plain and self.described and self.rng.random() < self.described:
            return NamedTerm(found, describe_entity(found))
        if not is_plain and may_say and self.rng.random() < (self.described or 0.3):
            return NamedTerm(found, describe_entity(found))
        return NamedTerm(found, found.title)

    def ask(self, relation: Relation | str, *args: Term | None) -> AskedTerm | None:
        """The relation asked of every value of `args`; None where one of them is missing or a document does not state
        it."""
        known = tuple(arg for arg in args if arg is not None)
        if len(known) < len(args):
            return None
        relation = load_relations()[relation] if isinstance(relation, str) else relation
        values: list[int | Value] = []
        for combination in product(*map(list_entities, known)):
            found = self.view.list_tails(combination[0], relation.id, *combination[1:])
            if not found:
                return None
            values += found
        single = relation.is_list and len(found) == 1
        if relation.is_list and not single and len(list_entities(known[0])) > 1:
            return None
        distinct = tuple(dict.fromkeys(values))
        kind = self.graph.entities[distinct[0]].type if isinstance(distinct[0], int) else relation.tail[0]
        wordings = relation.one if single else relation.ask
        depth = max((len(list_inputs(arg)) + 1 for arg in known if isinstance(arg, AskedTerm)), default=0)
        if depth > 1 or (depth and self.rng.random() < 0.6):
            wordings = tuple(w for w in wordings if any(map(ends_open, w.phrases))) or wordings
        return AskedTerm(relation, self.rng.choice(wordings), known, distinct, kind)

    def ask_each(self, relation: Relation, subjects: Iterable[Term | None]) -> list[AskedTerm]:
        """The relation asked of one subject after the other, without what no document states."""
        return [term for subject in subjects if (term := self.ask(relation, subject))]

    def reach(self, entity: int, depth: int, used: frozenset[int] = frozenset()) -> Term | None:
        """A term that stands for `entity` and takes `depth` leaves to find."""
        if depth == 0:
            return self.mention(entity)
        ways = [(head, r) for head, r in self.view.into[entity] if head not in used and head != entity]
        if not ways:
            return None
        chosen = self.rng.choice(sorted({r for _, r in ways}))
        head = self.rng.choice([h for h, r in ways if r == chosen])
        return self.ask(chosen, self.reach(head, depth - 1, used | {entity}))

    def follow(self, head: int, path: Sequence[str]) -> AskedTerm | None:
        """The term that follows `path` from the entity `head`."""
        term: Term | None = self.mention(head)
        for name in path:
            term = self.ask(name, term) if term and len(list_entities(term)) == 1 else None
        return term if isinstance(term, AskedTerm) else None

    def draw_fact(self) -> tuple[Relation, int]:
        """A relation and an entity of which one value is stated; every relation is as likely."""
        relation = self.rng.choice(self.singles)
        return relation, self.rng.choice(self.view.heads[relation.id])

    def write_frame(self, frame: str, **slots: str) -> str:
        """A question in one of the frames of this name."""
        return self.rng.choice(load_vocabulary()["frames"][frame]).format(**slots)

    def write_about_both(self, template: str, terms: Sequence[AskedTerm]) -> str:
        """`template` with the subjects of two terms for {a} and {b}."""
        one, other = (self.write_phrase(term.args[0]) for term in terms)
        return template.replace("{a}", one).replace("{b}", other)

    def name(self, term: Term) -> str:
        """The (first) value of a term as an answer."""
        return term.called if isinstance(term, NamedTerm) else self.list_texts(term.values)[0]

    def list_texts(self, values: Sequence[int | Value]) -> tuple[str, ...]:
        return tuple(self.graph.text(value) for value in values)

    def write_phrase(self, term: Term) -> str:
        """A noun phrase of the term's wording; around a phrase of its own rather one that ends with it."""
        if isinstance(term, NamedTerm):
            return term.text
        inner = [self.write_phrase(arg) for arg in term.args]
        fitting: Sequence[str] = term.wording.phrases
        if term.inputs:
            fitting = [p for p in fitting if "'s}" not in p] or fitting
            fitting = [p for p in fitting if ends_open(p)] or fitting
        return fill(self.rng.choice(fitting), inner)

    def write_question(self, term: AskedTerm) -> str:
        """The question for a term, about noun phrases."""
        return fill(term.wording.question, [self.write_phrase(arg) for arg in term.args])

    def write_request(self, term: AskedTerm) -> str:
        """The question for one term, at times in the form of a request for its noun phrase."""
        roll = self.rng.random()
        if roll < 0.8 or term.wording.phrases[0].startswith(("how ", "what ")):
            return self.write_question(term)
        return self.write_frame("request", who=find_pronoun(term), asked=self.write_phrase(term))

    def write_about(self, term: Term, top: Term, reference: str) -> str:
        """The noun phrase of `term` with `reference` (`that person`) in the place of `top`."""
        if term is top:
            return reference
        assert isinstance(term, AskedTerm)
        inner = self.write_about(term.args[0], top, reference)
        phrases = term.wording.phrases
        own = [p for p in phrases if p.startswith("{x's}")]
        subject, possessive = OF_OBJECTS.get(inner, (inner, ""))
        if possessive and own:
            return own[0].replace("{x's}", possessive)
        plain = [found for p in phrases if (found := OF.fullmatch(p))]
        if possessive and plain:
            return f"{possessive} {plain[0][1]}"
        chosen = self.rng.choice([p for p in phrases if "'s}" not in p] or list(phrases))
        return fill(chosen, [inner if chosen.endswith("{x}") and not chosen.endswith(" by {x}") else subject])

    def refer_to(self, entity: int) -> str:
        found = self.graph.entities[entity]
        if found.type == "person":
            return self.rng.choice(("that person", PRONOUNS[found.gender][1]))
        return self.rng.choice((f"that {found.type}", "it"))


def find_pronoun(term: AskedTerm) -> str:
    return "Who" if term.type == "person" else "What"


def lower(text: str) -> str:
    """A question as a clause inside a sentence."""
    return text[0].lower() + text[1:]
