"""Documents: one an entity, stating its facts in varied prose, each value in full and a list in one sentence.

A pronoun stands for the subject only after a sentence that named nothing else it could mean. A `View` indexes the facts
that the documents state: what can be asked.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass

from data_gen.world.graph import Entity, Fact, Relation, Value, WorldGraph, load_relations
from data_gen.world.names import load_vocabulary

CHARACTERS = 560  # of a document, about: what the relevance task shows is cut at 600
PRONOUNS = {
    "he": {"He": "He", "His": "His", "him": "him", "his": "his"},
    "she": {"He": "She", "His": "Her", "him": "her", "his": "her"},
    "they": {"He": "They", "His": "Their", "him": "them", "his": "their"},
}
PREPOSITIONS = frozenset({"by", "from", "in", "of", "on", "with"})
_CHOICE = re.compile(r"\{([\w ]+)\|([\w ]+)\}")


@dataclass(frozen=True)
class Document:
    """A passage and the relations of its entity that it states."""

    entity: int
    title: str
    text: str
    stated: frozenset[str]


def join_items(items: list[str]) -> str:
    """`A`, `A and B`, `A, B and C`; `A; B; and C` where an item has a comma or an `and` of its own."""
    if len(items) > 1 and any("," in item or " and " in item for item in items):
        return f"{'; '.join(items[:-1])}; and {items[-1]}"
    if len(items) < 3:
        return " and ".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def write_document(graph: WorldGraph, entity: Entity, rng: random.Random) -> Document:
    """The document of one entity; what finds no room is left out, and `stated` says what is in."""
    return _DocumentWriter(graph, entity, rng).write()


class _DocumentWriter:
    def __init__(self, graph: WorldGraph, entity: Entity, rng: random.Random) -> None:
        self.graph = graph
        self.entity = entity
        self.rng = rng
        self.pronouns = PRONOUNS[entity.gender or "they"]
        self.plain = True  # the last sentence named no other thing that a pronoun could mean

    def write(self) -> Document:
        rng, table = self.rng, load_relations()
        here = self.graph.facts.get(self.entity.id, {})
        core = [r for r in here if table[r].core]
        rest = [r for r in here if not table[r].core]
        rng.shuffle(rest)
        lead, led = self._write_lead(core + rest[:2])
        order = [r for r in core if r not in led]
        sentences, stated, length = [lead], set(led), len(lead)
        for relation in order + [r for r in rest if r not in led]:
            cost = sum(len(s) for s in self._write_sentences(relation, full=True))
            if table[relation].core or length + cost < CHARACTERS:
                stated.add(relation)
                length += cost + 1
        body = [r for r in here if r in stated and r not in led]
        rng.shuffle(body)
        for relation in body:
            sentences += self._write_sentences(relation)
        if rng.random() < 0.3:
            sentences.insert(rng.randrange(1, len(sentences) + 1), self._write_filler())
        return Document(self.entity.id, self.entity.title, " ".join(sentences), frozenset(stated))

    def _write_lead(self, candidates: list[str]) -> tuple[str, list[str]]:
        rng, entity, table = self.rng, self.entity, load_relations()
        parts = [r for r in candidates if table[r].part and not (table[r].is_list and len(self._list_values(r)) > 3)]
        rng.shuffle(parts)
        led = parts[: rng.choice((0, 1, 1, 2))] if entity.type != "prize" else parts[:1]
        if entity.type == "person":
            led = led[:1]
        said = [rng.choice(table[r].part).replace("{y}", join_items(self._list_values(r))) for r in led]
        if len(led) == 2 and (bare := [i for i, clause in enumerate(said) if clause.split()[0] in PREPOSITIONS]):
            led, said = [led[bare[0]]], [said[bare[0]]]
        kind = " ".join(word for word in (entity.genre, _find_noun(entity)) if word)
        verb = "was" if entity.type in ("person", "battle") else "is"
        name = f"The {entity.name}" if entity.mention != entity.title else entity.name
        article = "an" if kind[0].lower() in "aeiou" and not kind.startswith("uni") else "a"
        tail = "".join(f"{' and' if i else ''} {clause}" for i, clause in enumerate(said))
        self.plain = not any(self._is_alike(f.tail) for r in led for f in self.graph.facts[entity.id][r])
        return f"{name} {verb} {article} {kind}{tail}.", led

    def _list_values(self, relation: str) -> list[str]:
        return [self.graph.text(f.tail) for f in self.graph.facts[self.entity.id][relation]]

    def _write_sentences(self, id: str, full: bool = False) -> list[str]:
        """One sentence a relation, or for a relation with a second argument one a fact."""
        relation, found = load_relations()[id], self.graph.facts[self.entity.id][id]
        if not relation.second:
            values = self._list_values(id)
            return [self._write_fact(relation, {"y": join_items(values)}, len(values), found, full)]
        return [
            self._write_fact(
                relation, {"y": self.graph.entities[f.second].mention, "v": self.graph.text(f.tail)}, 1, [f], full
            )
            for f in found
            if f.second is not None
        ]

    def _write_fact(self, relation: Relation, values: dict[str, str], count: int, found: list[Fact], full: bool) -> str:
        rng = self.rng
        text = rng.choice(relation.say)
        if count > 1 or relation.is_list:
            text = _CHOICE.sub(lambda m: m[1] if _is_plural_first(m[1], m[2]) == (count > 1) else m[2], text)
        subject, possessive = self._choose_subject(text, full)
        slots = {"x": subject, "x's": possessive, "his": self.pronouns["his"], "n": COUNTS[min(count, 9)], **values}
        text = re.sub(r"\{(x's|y's|his|x|y|v|n)\}", lambda m: slots.get(m[1]) or possess(values["y"]), text)
        self.plain = not any(self._is_alike(end) for f in found for end in (f.tail, f.second))
        return text[0].upper() + text[1:]

    def _is_alike(self, other: int | Value | None) -> bool:
        """Could a pronoun mean this as well as the subject?"""
        return isinstance(other, int) and (self.graph.entities[other].type == "person") == (
            self.entity.type == "person"
        )

    def _choose_subject(self, text: str, full: bool) -> tuple[str, str]:
        entity, rng = self.entity, self.rng
        opens = text.startswith("{x")
        roll = 1.0 if full else rng.random()
        if entity.type == "person":
            if opens and self.plain and roll < 0.75:
                return self.pronouns["He"], self.pronouns["His"]
            short = entity.name.split()[-1] if roll < 0.45 and "." not in entity.name else entity.name
            return short, possess(short)
        if opens and self.plain and roll < 0.45 and entity.type != "band":
            return "It", "Its"
        if roll < 0.8:
            return f"the {entity.type}", f"the {entity.type}'s"
        name = f"the {entity.name}" if entity.mention != entity.title else entity.name
        return name, possess(name)

    def _write_filler(self) -> str:
        slots = {**self.pronouns, "year": str(self.rng.randrange(1890, 2022)), "count": str(self.rng.randrange(3, 90))}
        return self.rng.choice(load_vocabulary()["fillers"][self.entity.type]).format(**slots)


COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _is_plural_first(first: str, second: str) -> bool:
    """Is the first of `{films|film}`, `{are|is}`, `{star|stars}` the plural?"""
    plural = {"are", "star", "children", "children are", "cities", "companies"}
    return first in plural or (first.endswith("s") and second + "s" == first) or first.endswith(" are")


def _find_noun(entity: Entity) -> str:
    return {"studio": "film studio", "label": "record label"}.get(entity.noun, entity.noun)


def possess(name: str) -> str:
    """The possessive of a name."""
    return f"{name}'" if name.endswith("s") else f"{name}'s"


class View:
    """Stated facts.

    `into[e]` are the (head, relation) whose one value is entity `e`; `heads[r]` the entities with one value for `r`,
    `lists[r]` those with several; `holders[r, v]` those with the value `v`; `joint[r]` the facts of a relation with a
    second argument.
    """

    def __init__(self, graph: WorldGraph, documents: list[Document]) -> None:
        self.graph = graph
        self.documents = documents
        self.into: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.heads: dict[str, list[int]] = defaultdict(list)
        self.lists: dict[str, list[int]] = defaultdict(list)
        self._single: dict[int, list[str]] = defaultdict(list)
        self.joint: dict[str, list[Fact]] = defaultdict(list)
        self.holders: dict[tuple[str, int | Value], list[int]] = defaultdict(list)
        for head, facts in graph.facts.items():
            for relation, found in facts.items():
                if relation in documents[head].stated:
                    self._index(head, relation, found)

    def _index(self, head: int, relation: str, found: list[Fact]) -> None:
        if load_relations()[relation].second:
            self.joint[relation] += found
        elif len(found) > 1:
            self.lists[relation].append(head)
        else:
            tail = found[0].tail
            self.heads[relation].append(head)
            self._single[head].append(relation)
            self.holders[relation, tail].append(head)
            if isinstance(tail, int):
                self.into[tail].append((head, relation))

    def list_tails(self, head: int, relation: str, second: int | None = None) -> list[int | Value]:
        """The values that the document of `head` states, none if it does not."""
        if relation not in self.documents[head].stated:
            return []
        return [f.tail for f in self.graph.facts[head].get(relation, ()) if f.second == second]

    def list_single(self, head: int) -> list[str]:
        """Relations of which the document of `head` states exactly one value."""
        return self._single[head]
