"""A logical query over an index: terms embedded in one batch, every document scored by one matrix product, composed.

A calibration turns scores into probabilities that a document is about a term: σ((s - τ)·λ) (ITLR, appendix E).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field, FiniteFloat

from revelator.errors import ArtifactError, ConfigError, DataError, InvalidRequest
from revelator.plans import logic
from revelator.plans.faults import fault
from revelator.plans.logic import Query
from revelator.scores import fit_logistic
from revelator.trace import Passage
from serving.retrieval.dense import compute_products, find_best
from serving.retrieval.index import Index
from serving.retrieval.logic import DEFAULT, Operators, compose

POSITIVES = NEGATIVES = 20  # documents a term, as in the paper
Source = Literal["dense", "bm25", "both"]


@dataclass(frozen=True)
class Calibration:
    """σ((s - threshold)·slope): `threshold` is the score at which a document is as likely about the term as not."""

    threshold: FiniteFloat
    slope: Annotated[FiniteFloat, Field(gt=0)]

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities, of the shape of `scores`."""
        return 1 / (1 + np.exp(np.clip((self.threshold - scores) * self.slope, -60, 60)))


@dataclass(frozen=True)
class Calibrations:
    """One calibration for each term that was labelled, and `general`, of all labels, for every other.

    They hold for scores of one `source`, and where these are cosines for one model (its digest; "" for BM25).
    """

    source: Source
    model: str
    general: Calibration
    terms: Mapping[str, Calibration]

    def of(self, term: str) -> Calibration:
        return self.terms.get(term, self.general)


def fit_calibration(scores: ArrayLike, labels: ArrayLike) -> Calibration:
    """The calibration of highest likelihood for `labels` (1: about the term) of documents with `scores`.

    The targets are Platt's ((n+1)/(n+2) for n positives, 1/(n+2) for n negatives), so that scores which a threshold
    separates still give a finite slope. Raises DataError without a document of each label.
    """
    s, y = np.asarray(scores, float), np.asarray(labels, bool)
    positives, negatives = int(y.sum()), int((~y).sum())
    if not positives or not negatives:
        raise DataError(f"a calibration needs documents of both labels, not {positives} and {negatives}")
    center, scale = s.mean(), max(float(s.std()), 1e-9)
    x = (s - center) / scale
    target = np.where(y, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    (slope,), shift = fit_logistic(x[:, None], target)
    slope = max(slope, 1e-3)
    return Calibration(float(center - shift / slope * scale), float(slope / scale))


def calibrate_unlabelled(scores: np.ndarray) -> Calibration:
    """A calibration without labels: the term's best documents stand for positives, others at random for negatives."""
    positives = min(POSITIVES, max(1, len(scores) // 2))
    order = np.argsort(-scores, kind="stable")
    rest = np.random.default_rng(0).permutation(order[positives:])[:NEGATIVES]
    chosen = np.concatenate([order[:positives], rest])
    return fit_calibration(scores[chosen], np.arange(len(chosen)) < positives)


@dataclass(frozen=True)
class LogicalSettings:
    """How a logical query is run.

    `source`: cosines, BM25, or the mean of both; None takes what the index has. `calibration`: one for all terms, one
    by term, or `"self"` for one fitted on each term's own best documents (`calibrate_unlabelled`).
    """

    operators: Operators = DEFAULT
    source: Source | None = None
    calibration: Calibration | Calibrations | Literal["none", "self"] = "none"


_DEFAULTS = LogicalSettings()


def search_logical(index: Index, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS) -> list[Passage]:
    """The `k` best passages for a logical query. Raises ExpressionError, InvalidRequest, ConfigError."""
    return index.read_passages(*rank_logical(index, query, k, settings))


class LogicalRetriever:
    """Searches an index of this process by logical queries, in threads."""

    def __init__(self, index: Index, settings: LogicalSettings = _DEFAULTS) -> None:
        self.index = index
        self.settings = settings

    async def search(self, query: str, k: int) -> list[Passage]:
        return await asyncio.to_thread(search_logical, self.index, query, k, self.settings)


def rank_logical(
    index: Index, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS
) -> tuple[np.ndarray, np.ndarray]:
    """(scores, positions) of the `k` best passages. One of score 0 holds nothing that was asked for, and is not found.

    Raises ExpressionError, InvalidRequest, ConfigError."""
    query = read_query(query)
    if k < 1:
        raise InvalidRequest(f"k must be 1 or more, not {k}")
    source = _check_source(index, settings)
    terms = logic.terms(query)
    cosines = None
    if source != "bm25":
        vectors, matrix = embed_terms(index, terms)
        cosines = compute_products(matrix, vectors)
    scores = {}
    for i, term in enumerate(terms):
        raw = compute_raw_scores(index, term, None if cosines is None else cosines[i], source)
        scores[term] = _calibrate(term, raw, settings.calibration)
    total = compose(query, scores, settings.operators)
    chosen = find_best(total, k)
    chosen = chosen[total[chosen] > 0]
    return total[chosen], chosen


def choose_source(index: Index, source: Source | None) -> Source:
    """The scores that are taken where none are named: cosines if the index has vectors."""
    return source or ("dense" if index.vectors is not None else "bm25")


def _check_source(index: Index, settings: LogicalSettings) -> Source:
    """The scores to take, which a calibration that was fitted on labels fits."""
    if not isinstance(settings.calibration, Calibrations):
        return choose_source(index, settings.source)
    fitted = settings.calibration
    source = settings.source or fitted.source
    if fitted.source != source:
        hint = f"take source {fitted.source}, or calibrate anew"
        raise ConfigError(f"the calibration is of source {fitted.source}, not {source}", hint=hint)
    if source != "bm25" and index.vectors is not None and fitted.model != index.manifest["model"]["digest"]:
        message = "the calibration is of another model's cosines"
        raise ArtifactError(message, where=str(index.folder), hint="revelator index calibrate")
    return source


def read_query(query: Query | str) -> Query:
    """The query, parsed. Raises ExpressionError, with the place, for one that `check` calls empty or too long."""
    text = query if isinstance(query, str) else logic.render(query)
    query = logic.parse(text)
    for found in logic.check(query):
        if found.code in ("empty-term", "too-many-terms"):
            raise fault(text, found.code, found.message, found.start, found.end, found.hint)
    return query


def embed_terms(index: Index, terms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of the terms, embedded in one batch, and the vectors of all passages."""
    if index.vectors is None:
        raise ConfigError("this index holds no vectors", where=str(index.folder), hint="build it with --kind dense")
    return index.encoder.encode_queries(terms), index.vectors.matrix


def compute_raw_scores(
    index: Index, term: str, cosines: np.ndarray | None, source: Source, places: np.ndarray | None = None
) -> np.ndarray:
    """The term's score for each document, or those at `places`, before it is calibrated or cut."""
    parts = [] if cosines is None else [cosines]
    if source != "dense":
        sparse = compute_sparse_scores(index, term)
        parts.append(sparse if places is None else sparse[places])
    return parts[0] if len(parts) == 1 else (parts[0] + parts[1]) / 2


def _calibrate(
    term: str, scores: np.ndarray, calibration: Calibration | Calibrations | Literal["none", "self"]
) -> np.ndarray:
    """Scores in [0, 1] by the calibration that is given, or none."""
    match calibration:
        case "none":
            return np.clip(scores, 0, 1)
        case "self":
            return calibrate_unlabelled(scores)(scores)
        case Calibrations():
            return calibration.of(term)(scores)
    return calibration(scores)


def compute_sparse_scores(index: Index, term: str) -> np.ndarray:
    """BM25 of a term's words over the term's best score in the corpus, in [0, 1]."""
    if index.bm25 is None:
        raise ConfigError(
            "this index holds no BM25 scores", where=str(index.folder), hint="build it with --kind hybrid"
        )
    scores = index.bm25.score(term)
    return scores / max(float(scores.max(initial=0)), 1e-9)
