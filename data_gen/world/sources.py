"""Sources of knowledge that a world is divided among, by type of thing: who holds what, and in which words they say so.

A question for training gets sources of its own, drawn by its id: how many, their names and kinds, which types of things
each holds, and the words for that. A model that learns who to ask thus cannot go by names.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any, Literal

from data_gen.questions import AnnotatedSource
from data_gen.world.documents import join_items
from data_gen.world.names import load_vocabulary

KINDS: list[Literal["graph", "text", "web"]] = ["graph", "text", "web"]
Division = Sequence[tuple[AnnotatedSource, frozenset[str]]]  # sources, and the types of things that each holds


def list_types() -> list[str]:
    """The types of things in a world."""
    return list(load_vocabulary()["holdings"])


def divide(rng: random.Random, types: Sequence[str], count: int) -> list[list[str]]:
    """Some types in `count` parts of like size."""
    shuffled = rng.sample(types, len(types))
    return [shuffled[place::count] for place in range(count)]


def divide_by_chance(id: str, asked: Sequence[str]) -> Division:
    """Two to four sources for one question, which hold among them the types that it asks about and some others."""
    rng, words = random.Random(f"sources:{id}"), load_vocabulary()
    needed = list(dict.fromkeys(asked))
    others = [name for name in list_types() if name not in needed]
    count = rng.randint(2, 4)
    types = needed + rng.sample(others, rng.randint(min(count, len(others)), len(others)))
    names = rng.sample(words["source names"], count)
    return [
        (_describe(rng, name, words, held), frozenset(held))
        for name, held in zip(names, divide(rng, types, count), strict=True)
    ]


def _describe(rng: random.Random, name: str, words: dict[str, Any], held: Sequence[str]) -> AnnotatedSource:
    """Half of the sources that hold one type say it by their names alone."""
    if len(held) == 1 and rng.random() < 0.5:
        return AnnotatedSource(words["holdings"][held[0]][0], rng.choice(KINDS))
    things = join_items([rng.choice(words["holdings"][one][:-1]) for one in held])
    return AnnotatedSource(name, rng.choice(KINDS), rng.choice(words["source frames"]).format(things=things))


def describe_in_new_words(types: Sequence[str]) -> str:
    """What a source holds, in words that no question for training has."""
    return join_items([load_vocabulary()["holdings"][name][-1] for name in types])


def find_holders(division: Division, types: Collection[str]) -> tuple[str, ...]:
    """The names of the sources that hold one of these types."""
    return tuple(source.name for source, held in division if not held.isdisjoint(types))
