"""Ways to ask for documents that treat a logical combination of topics, and their query.

`logic_wordings.jsonl` has them one by one: `{"question": "{0} anywhere but {1}, please", "query": "{0} AND NOT {1}"}`.
A large language model wrote them, each as another person would say it: questions that rules make out of phrases teach a
model to read these phrases alone (docs/results.md). One in ten of the ways is for dev and test, whatever its topics.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from data_gen.records import hash_fraction
from revelator.plans.grammar import write_string
from revelator.plans.logic import Query, parse

WORDINGS = "logic_wordings.jsonl"
HELD_OUT = 0.1  # part of the ways to ask that no training question uses
SLOT = re.compile(r"\{\d\}")
CONNECTIVE = re.compile(r"[,:;]|\b(?:and|or|not|no|nor|but|except|without|only|than|all|any|none)\b", re.I)
QUOTED = 0.06  # chance that a topic is quoted though it need not be
LOWER = 0.08  # chance that the question is typed without capitals


@dataclass(frozen=True)
class Wording:
    """A way to ask: `{0}`, `{1}`, … stand for topics, in the order in which the question names them."""

    question: str
    query: str

    @property
    def size(self) -> int:
        """How many topics it is about."""
        return len(SLOT.findall(self.question))

    def fill(self, topics: tuple[str, ...], rng: random.Random) -> tuple[str, Query]:
        """The question about these topics, and its query."""
        question = self.question
        if rng.random() < LOWER:
            question, topics = question.lower(), tuple(map(str.lower, topics))
        shown = [_quote_topic(topic, rng) for topic in topics]
        return question.format(*shown), parse(self.query.format(*map(write_string, topics)))


def _quote_topic(text: str, rng: random.Random) -> str:
    """A topic as the question names it: in quotes where a word of its own could be taken for one of the question."""
    return f'"{text}"' if CONNECTIVE.search(text) or rng.random() < QUOTED else text


@cache
def list_wordings(held_out: bool = False) -> tuple[Wording, ...]:
    """The ways to ask of training, or those that are kept from it."""
    lines = files("data_gen.sources").joinpath(WORDINGS).read_text(encoding="utf-8").splitlines()
    found = [Wording(**json.loads(line)) for line in lines]
    return tuple(way for way in found if (hash_fraction(f"wording:{way.question}") < HELD_OUT) == held_out)
