"""Ranks documents for logical queries and measures nDCG@10 (ITLR, appendix H). Each case ranks the documents of its
pool; `evaluation.harness.corpus_cases` makes and reads cases. A run needs an encoder, but no generator and no index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evaluation.harness.config import RankingConfig
from evaluation.harness.folder import NO_COST, Cost, QuestionRow
from evaluation.metrics.retrieval import compute_ndcg
from revelator.plans import logic
from revelator.plans.logic import And, Not, Query, Term
from serving.retrieval.embedders import Encoder
from serving.retrieval.logical_search import Operators, compose

DEEPEST = 10


@dataclass(frozen=True)
class Case:
    """A query, and the question that a person would ask for it.

    `relevant` holds the positions of matching documents, `pool` the positions of all that are ranked. `kind` groups
    cases: `template 3`. `reasoning` about the question is searched with in its place, at this `cost`.
    """

    id: str
    query: Query
    question: str
    kind: str
    relevant: frozenset[int]
    pool: tuple[int, ...]
    reasoning: str = ""
    cost: Cost = NO_COST


def write_query(query: Query) -> str:
    """Spells a query of a template as a person would ask it: `documents about A and not about B, or about C`."""
    return f"documents {_write_part(query)}"


def _write_part(query: Query) -> str:
    if isinstance(query, Term):
        return f"about {query.text}"
    if isinstance(query, Not):
        return f"not {_write_part(query.operand)}"
    return (" and " if isinstance(query, And) else ", or ").join(map(_write_part, query.operands))


@dataclass(frozen=True)
class LabelledCases:
    """Cases and the texts of all their documents, of which the first line is the title; a case's `pool` holds positions
    in `texts`."""

    cases: list[Case]
    texts: list[str]


def rank(
    cases: Sequence[Case], texts: Sequence[str], config: RankingConfig, operators: Operators, benchmark: str
) -> Iterator[QuestionRow]:
    """Ranks the documents of each case and yields its row, which has no score where no document matches. `plain` ranks
    by the cosine of the whole question, `bright` by that of the reasoning about it, `logical` by the combined cosines
    of its terms, `random` by chance. Times exclude embedding."""
    encoder = Encoder(config.model, config.max_tokens)
    titles = [text.partition("\n")[0] for text in texts]
    matrix, vectors = encoder.encode_documents(list(texts)), encode_queries(cases, encoder)
    chance = np.random.default_rng(config.seed)

    def score_plain(case: Case) -> np.ndarray:
        return matrix[list(case.pool)] @ vectors[case.reasoning or case.question]

    def score_logically(case: Case) -> np.ndarray:
        documents = matrix[list(case.pool)]
        cosines = {term: np.maximum(documents @ vectors[term], 0) for term in logic.list_terms(case.query)}
        return compose(case.query, cosines, operators)

    ways: dict[str, Callable[[Case], np.ndarray]] = {
        "plain": score_plain,
        "bright": score_plain,
        "logical": score_logically,
        "random": lambda case: chance.random(len(case.pool)),
    }
    for case in cases:
        began = time.perf_counter()
        order = [case.pool[i] for i in np.argsort(-ways[config.way](case), kind="stable")]
        taken = time.perf_counter() - began
        yield QuestionRow(
            id=case.id,
            benchmark=benchmark,
            question=case.question,
            golds=(),
            status="answered",
            gold_plan=logic.render(case.query),
            terms=len(logic.list_terms(case.query)),
            negations=logic.count_negations(case.query),
            kind=case.kind,
            gold_titles=tuple(titles[i] for i in sorted(case.relevant)),
            retrieved=tuple(titles[i] for i in order[:DEEPEST]),
            scores={"ndcg@10": compute_ndcg(order, case.relevant)} if case.relevant else {},
            cost=replace(case.cost, retrievals=1, wall_s=case.cost.wall_s + taken, path_s=case.cost.path_s + taken),
        )


def encode_queries(cases: Sequence[Case], encoder: Encoder) -> dict[str, np.ndarray]:
    """Embeds each term, and each question or the reasoning about it."""
    texts = {text for case in cases for text in (*logic.list_terms(case.query), case.reasoning or case.question)}
    ordered = sorted(texts)
    return dict(zip(ordered, encoder.encode_queries(ordered), strict=True))
