"""Fills a graph: the entities and their names, then what holds between them."""

from __future__ import annotations

import random

from data_gen.world.facts import (
    add_career_facts,
    add_event_facts,
    add_family_facts,
    add_music_facts,
    add_organisation_facts,
    add_people_facts,
    add_place_facts,
    add_work_facts,
)
from data_gen.world.graph import Graph, GraphMaker, add_inverses, qualify
from data_gen.world.names import Names

SHARES = {
    "country": 0.03,
    "river": 0.03,
    "city": 0.09,
    "person": 0.36,
    "university": 0.03,
    "publisher": 0.025,
    "company": 0.06,
    "band": 0.04,
    "prize": 0.025,
    "festival": 0.03,
    "battle": 0.03,
    "film": 0.12,
    "novel": 0.08,
    "album": 0.05,
    "song": 0.07,
}
SMALLEST = 300  # entities: fewer give no pairs for some shapes
EQUAL_NAMES = 0.05  # share of entities that take the name of another
WORKS = frozenset({"film", "novel", "album", "song"})
PLAIN = frozenset({"river", "battle", "festival", "prize", "country", "university", "publisher"})  # never share a name


def populate(size: int, rng: random.Random, taken: set[str]) -> Graph:
    """A graph of about `size` entities whose names are not in `taken` (they are added to it)."""
    maker = GraphMaker(rng, Names(rng, taken))
    _create_entities(maker, max(size, SMALLEST))
    for add in (
        add_place_facts,
        add_people_facts,
        add_family_facts,
        add_organisation_facts,
        add_work_facts,
        add_music_facts,
        add_event_facts,
        add_career_facts,
    ):
        add(maker)
    add_inverses(maker.graph)
    qualify(maker.graph)
    return maker.graph


def _create_entities(m: GraphMaker, size: int) -> None:
    for type, share in SHARES.items():
        for _ in range(max(4, round(size * share))):
            _create_entity(m, type)


def _create_entity(m: GraphMaker, type: str) -> None:
    rng, graph = m.rng, m.graph
    noun = {"person": "", "company": rng.choice(("studio", "label", "company", "company"))}.get(type, type)
    name = None
    if type not in PLAIN and graph.entities and m.happens(EQUAL_NAMES):
        other = rng.choice(graph.entities)
        alike = {type, other.type} <= WORKS or type == other.type == "person"
        if alike or (type != other.type and "person" not in (type, other.type) and other.type not in PLAIN):
            name = other.name
    if type == "person" and name is None and graph.by_type["person"] and m.happens(EQUAL_NAMES):
        name = m.names.near(m.pick("person").name)
    more: dict[str, str | int] = {"birth": rng.randrange(1500, 1930)}
    if type == "person":
        used = {e.noun for e in graph.by_type["person"] if e.name == name} if name else set()
        noun = rng.choice([o for o in m.occupations if o not in used] or ["traveller"])
        more = {"gender": rng.choice(("he", "she")), "birth": rng.randrange(1840, 1990)}
    if type in m.words["genres"]:
        more = {"genre": rng.choice(m.words["genres"][type]), "birth": rng.randrange(1880, 2023)}
    graph.new(type, name or m.names.new(noun if noun in ("studio", "label") else type), noun, **more)
