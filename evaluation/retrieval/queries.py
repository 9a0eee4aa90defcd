"""Whole question or leaves: the queries of each way to ask, their rankings at equal numbers of documents, and scores.

The ways:

* `question`: the whole question is the one query.
* `gold`: the steps of the gold decomposition, the gold answers of earlier steps filled in. What decomposition could
  bring if nothing went wrong.
* `compiled`: the leaves of the model's plan with gold answers filled in: what the model's wording costs.
* `executed`: the leaves of the model's plan as the executor asked them, with the answers that it found itself.

Several rankings become one by taking turns, first ranks first (`interleaved`), without repeats. So at a budget of B
documents each way has B different documents, and nothing is compared that cost more to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from scipy.optimize import linear_sum_assignment

from data_gen.questions import AnnotatedQuestion
from evaluation.metrics.plans import dice
from evaluation.metrics.retrieval import ndcg
from revelator.errors import ExpressionError
from revelator.plans import Expression, bind, check, leaves, parse, placeholders, substitute, to_letters
from serving.retrieval import terms

WAYS = {
    "question": "whole question",
    "gold": "gold steps, gold answers between",
    "compiled": "compiled leaves, gold answers between",
    "executed": "compiled leaves, predicted answers between",
}
DEPTH = 20  # documents of each merged ranking that are kept


@dataclass(frozen=True)
class Ranked:
    """What one question found in one corpus.

    `gold` are the paragraphs or pages that answer its steps; `found` gives for each way the merged ranking, at most
    `DEPTH` of what the corpus calls a document; `queries` counts each way's queries. `shape` are the letters of the
    gold plan, `hops` the steps of the gold decomposition.
    """

    id: str
    source: str
    split: str
    corpus: str
    shape: str
    hops: int
    gold: list[str]
    found: dict[str, list[str]]
    queries: dict[str, int]


def interleaved(rankings: Sequence[Sequence[str]], depth: int = DEPTH) -> list[str]:
    """The first of each ranking, then the second of each, …, without repeats, `depth` at most."""
    turns = (item for turn in zip_longest(*rankings) for item in turn if item is not None)
    return list(dict.fromkeys(turns))[:depth]


def recall_at(row: Ranked, way: str, budget: int) -> float:
    """Share of the gold documents among the first `budget` of a way."""
    return len(set(row.gold) & set(row.found[way][:budget])) / len(row.gold)


def ndcg_at(row: Ranked, way: str, budget: int) -> float:
    """nDCG with gain 1 for each gold document."""
    place = {name: number for number, name in enumerate(dict.fromkeys([*row.found[way], *row.gold]))}
    return ndcg([place[name] for name in row.found[way]], {place[name] for name in row.gold}, budget)


def shape_of(question: AnnotatedQuestion) -> str:
    return to_letters(parse(question.expression))


def gold_queries(question: AnnotatedQuestion) -> list[str]:
    return [step.question for step in question.steps]


def compiled_queries(plan: str, question: AnnotatedQuestion) -> list[str]:
    """The leaves of `plan` with gold answers for placeholders; the question itself for a plan that does not check.

    A leaf has the answer of the gold step that it stands for: the pairs are chosen together, so that they share the
    most words. A leaf for which no step is left has no answer: who refers to it says the placeholder's name.
    """
    expression = parsed(plan)
    if expression is None:
        return [question.question]
    texts, sources = leaves(expression), bind(expression).sources
    answers = gold_answers([leaf.text for leaf in texts], question)
    return [
        substitute(leaf.text, {name: answers.get(fed[name], name) for name in placeholders(leaf.text)})
        for leaf, fed in zip(texts, sources, strict=True)
    ]


def parsed(plan: str) -> Expression | None:
    """The plan, or None where it does not parse or check."""
    try:
        expression = parse(plan)
    except ExpressionError:
        return None
    return None if check(expression) else expression


def gold_answers(texts: Sequence[str], question: AnnotatedQuestion) -> Mapping[int, str]:
    """The gold answer of each leaf, by its index, where a gold step stands for it whose answer a later step needs: the
    answers that the question asks for are in no query."""
    gold = parse(question.expression)
    wanted, fed = [leaf.text for leaf in leaves(gold)], {i for named in bind(gold).sources for i in named.values()}
    if len(wanted) != len(question.steps):  # a fan-out writes its steps out
        return {}
    ours_said, said = [_words(text) for text in texts], [_words(text) for text in wanted]
    likeness = np.array([[dice(one, other) for other in said] for one in ours_said])
    pairs = zip(*linear_sum_assignment(likeness, maximize=True), strict=True)
    return {int(leaf): question.steps[step].answer for leaf, step in pairs if step in fed}


def _words(text: str) -> set[str]:
    return set(terms(substitute(text, dict.fromkeys(placeholders(text), ""))))
