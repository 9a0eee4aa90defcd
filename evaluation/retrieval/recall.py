"""Which gold titles retrieval finds: with the whole question, and with the single questions of its plan.

A title that the index does not hold cannot be found by any query: `present` says which ones it holds, so that coverage
and recall can be told apart; `wikipedia` says which of them the encyclopedia alone would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_gen.questions import AnnotatedQuestion
from evaluation.metrics.retrieval import title_key
from serving.retrieval import Index

DEPTH = 10
WIKIPEDIA_ID = "/wiki/"


@dataclass(frozen=True)
class Retrieved:
    """Titles, best first. `whole` has DEPTH x (number of single questions) of them, so that the whole question can be
    given as many passages as its plan; `leaves` has DEPTH for each single question."""

    id: str
    source: str
    gold: tuple[str, ...]
    present: tuple[str, ...]
    wikipedia: tuple[str, ...]
    whole: tuple[str, ...]
    leaves: tuple[tuple[str, ...], ...]


def gold_titles(question: AnnotatedQuestion) -> tuple[str, ...]:
    """Titles of the passages that state the steps' answers; of the relevant passages where the steps name none."""
    named = [step.title for step in question.steps if step.title]
    return tuple(dict.fromkeys(named or [passage.title for passage in question.passages if passage.relevant]))


@dataclass(frozen=True)
class Held:
    """Keys of the titles that an index holds: all, and those whose passage comes from Wikipedia's introductions."""

    all: frozenset[str]
    wikipedia: frozenset[str]


def titles_of(index: Index) -> Held:
    keys = [(title_key(passage.title), passage.id) for passage in map(index.passages.__getitem__, range(len(index)))]
    return Held(frozenset(k for k, _ in keys), frozenset(k for k, id in keys if id.startswith(WIKIPEDIA_ID)))


def retrieve(
    question: AnnotatedQuestion, index: Index, held: Held, asked: Sequence[str], depth: int = DEPTH
) -> Retrieved:
    """What the index finds for the question and for each single question in `asked`."""
    gold = gold_titles(question)
    return Retrieved(
        question.id,
        question.source,
        gold,
        tuple(title for title in gold if title_key(title) in held.all),
        tuple(title for title in gold if title_key(title) in held.wikipedia),
        _titles(index, question.question, depth * max(1, len(asked))),
        tuple(_titles(index, text, depth) for text in asked),
    )


def _titles(index: Index, query: str, k: int) -> tuple[str, ...]:
    return tuple(passage.title for passage in index.search(query, k))
