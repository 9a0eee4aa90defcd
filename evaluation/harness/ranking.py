"""Runs ITLR's template benchmark: each case of 32 logical templates ranks the documents of its pool; nDCG@10.

The cases are generated (`evaluation.itlr.cases`, `evaluation.itlr.scifact`); corpus, seed and number of cases a
template determine them. A run needs an encoder, but no generator and no index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from evaluation.harness.config import OperatorsConfig, RankingConfig
from evaluation.harness.folder import Cost, QuestionRow
from evaluation.itlr.cases import Case, make_world_cases
from evaluation.itlr.scifact import make_scifact_cases, read_abstracts
from evaluation.metrics.retrieval import ndcg
from revelator.errors import ConfigError
from revelator.files import sha256_file
from revelator.plans import logic
from serving.retrieval.encoder import Encoder
from serving.retrieval.logic import Operators, compose

WORLD = "world"
DEEPEST = 10


def read_cases(config: RankingConfig) -> tuple[list[Case], list[str], list[str]]:
    """Makes the cases, the texts of all documents, and each document's title (its first line)."""
    if config.corpus == WORLD:
        made = make_world_cases(config.per_template, config.seed)
        return made.cases, made.texts, [text.partition("\n")[0] for text in made.texts]
    path = Path(config.corpus)
    if not path.is_file():
        raise ConfigError("there is no such file", where=config.corpus, hint="`world`, or SciFact's corpus.jsonl")
    abstracts = read_abstracts(path)
    titles = [row["title"] for row in abstracts.rows]
    texts = [f"{row['title']}\n{row['text']}" for row in abstracts.rows]
    return make_scifact_cases(abstracts, config.per_template, config.seed), texts, titles


def digest_files(config: RankingConfig) -> dict[str, str]:
    return {} if config.corpus == WORLD else {config.corpus: sha256_file(Path(config.corpus))}


def name_case(place: int, case: Case) -> str:
    return f"itlr:{case.template}:{place}"


def rank(
    cases: Mapping[int, Case],
    texts: Sequence[str],
    titles: Sequence[str],
    config: RankingConfig,
    operators: OperatorsConfig,
) -> Iterator[QuestionRow]:
    """Ranks the documents of each case, which is given by its place, and yields its row. `plain` ranks by the cosine of
    the whole question, `logical` by the combined cosines of its terms, `random` by chance. Times exclude embedding."""
    encoder = Encoder.open(config.model, config.max_tokens)
    matrix, vectors = encoder.encode_documents(list(texts)), embed_queries(list(cases.values()), encoder)
    chance = np.random.default_rng(config.seed)
    how = Operators(**operators.model_dump())

    def plain(case: Case) -> np.ndarray:
        return matrix[list(case.pool)] @ vectors[case.question]

    def logical(case: Case) -> np.ndarray:
        documents = matrix[list(case.pool)]
        cosines = {term: np.maximum(documents @ vectors[term], 0) for term in logic.terms(case.query)}
        return compose(case.query, cosines, how)

    ways: dict[str, Callable[[Case], np.ndarray]] = {
        "plain": plain,
        "logical": logical,
        "random": lambda case: chance.random(len(case.pool)),
    }
    for place, case in cases.items():
        began = time.perf_counter()
        order = [case.pool[i] for i in np.argsort(-ways[config.way](case), kind="stable")]
        taken = time.perf_counter() - began
        yield QuestionRow(
            id=name_case(place, case),
            benchmark="itlr",
            question=case.question,
            golds=(),
            status="answered",
            gold_plan=logic.render(case.query),
            negations=case.negations,
            kind=f"template {case.template}",
            gold_titles=tuple(titles[i] for i in sorted(case.relevant)),
            retrieved=tuple(titles[i] for i in order[:DEEPEST]),
            scores={"ndcg@10": ndcg(order, case.relevant)},
            cost=Cost(retrievals=1, wall_s=taken, path_s=taken),
        )


def embed_queries(cases: Sequence[Case], encoder: Encoder) -> dict[str, np.ndarray]:
    """Embeds each term and each question."""
    texts = sorted({text for case in cases for text in (*logic.terms(case.query), case.question)})
    return dict(zip(texts, encoder.encode_queries(texts), strict=True))
