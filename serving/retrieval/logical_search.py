"""A logical query over an index: terms embedded in one batch, scored by one matrix product, composed.

Where the vectors fit into memory every document is scored. Beyond that the FAISS index proposes candidates: the
nearest to each term, the farthest from each negated one (the nearest to its opposite), and the nearest to the sum of
what each alternative asks for less what it excludes; they are scored exactly. `recall` says how much of the exact
answer that finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

import numpy as np
import psutil

from revelator.errors import ArtifactError, ConfigError, InvalidRequest
from revelator.plans import logic
from revelator.plans.faults import fault
from revelator.plans.logic import Or, Query, literals, normal_form
from revelator.trace import Passage
from serving.retrieval.bounded import search_bounded
from serving.retrieval.calibration import Calibration, Calibrations, self_labelled
from serving.retrieval.fusion import standardised
from serving.retrieval.index import Index
from serving.retrieval.logical import DEFAULT, Operators, best, compose
from serving.retrieval.products import products

Source = Literal["dense", "bm25", "both"]
MEMORY = 0.5  # of the machine's, that vectors may take for a search over all of them
CANDIDATES = 1000  # proposed for each direction


@dataclass(frozen=True)
class LogicalSettings:
    """How a logical query is run.

    `source`: cosines, BM25, or the mean of both; None takes what the index has. `calibration`: one for all terms, one
    by term, or `"self"` for one fitted on each term's own best documents (`self_labelled`). `plain` weighs the cosine
    of the query's positive terms together, in standard deviations, against the composed score; 0 is the paper's way.
    `exact`: over all documents, or over `candidates` for each direction; None decides by memory.
    """

    operators: Operators = DEFAULT
    source: Source | None = None
    calibration: Calibration | Calibrations | Literal["none", "self"] = "none"
    plain: float = 0.0
    exact: bool | None = None
    candidates: int = CANDIDATES

    def __post_init__(self) -> None:
        if self.source is not None and self.source not in get_args(Source):
            raise InvalidRequest(f"source is {', '.join(get_args(Source))}, not {self.source!r}")
        if not 0 <= self.plain < math.inf:
            raise InvalidRequest(f"plain is a weight of 0 or more, not {self.plain}")


_DEFAULTS = LogicalSettings()


@dataclass(frozen=True)
class Found:
    """Positions, best first, with their scores; `exact` if every document was scored, of how many if not.

    A document of score 0 holds nothing that was asked for, and is not found (with `plain`, scores are relative, and 0
    is one like others).
    """

    scores: np.ndarray = field(repr=False)
    places: np.ndarray = field(repr=False)
    exact: bool
    scored: int


def search_logical(index: Index, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS) -> list[Passage]:
    """The `k` best passages for a logical query. Raises ExpressionError, InvalidRequest, ConfigError."""
    found = run(index, query, k, settings)
    return index.found(found.scores, found.places)


def run(index: Index, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS) -> Found:
    """`search_logical` as positions."""
    query = checked(query)
    if k < 1:
        raise InvalidRequest(f"k must be 1 or more, not {k}")
    source = _source(index, settings)
    if source == "bm25" and (settings.exact is False or settings.plain):
        asked = "plain weighs a cosine" if settings.plain else "candidates are proposed by vectors"
        raise ConfigError(f"{asked}, and source bm25 has none", hint="leave it out, or take source dense or both")
    terms = logic.terms(query)
    vectors = _embedded(index, query, terms, settings.plain > 0) if source != "bm25" else np.zeros((0, 0), np.float32)
    places = _candidates(index, query, terms, vectors, settings) if source != "bm25" else None
    if places is None and source == "dense" and settings.calibration != "self" and not settings.plain:
        return _bounded(index, query, k, dict(zip(terms, vectors, strict=True)), settings)
    cosines = _cosines(index, vectors, places)
    scores = {
        term: _score(index, term, cosines[i] if source != "bm25" else None, source, places, settings)
        for i, term in enumerate(terms)
    }
    total = compose(query, scores, settings.operators)
    relative = len(cosines) > len(terms)
    if relative:
        total = standardised(total) + settings.plain * standardised(cosines[-1])
    chosen = best(total, k)
    if not relative:
        chosen = chosen[total[chosen] > 0]
    return Found(total[chosen], chosen if places is None else places[chosen], places is None, len(total))


def source_of(index: Index, source: Source | None) -> Source:
    """The scores that are taken where none are named: cosines if the index has vectors."""
    return source or ("dense" if index.vectors is not None else "bm25")


def _source(index: Index, how: LogicalSettings) -> Source:
    """The scores to take, which a calibration that was fitted on labels fits."""
    if not isinstance(how.calibration, Calibrations):
        return source_of(index, how.source)
    fitted = how.calibration
    source = how.source or cast(Source, fitted.source)
    if fitted.source != source:
        hint = f"take source {fitted.source}, or calibrate anew"
        raise ConfigError(f"the calibration is of source {fitted.source}, not {source}", hint=hint)
    if source != "bm25" and index.vectors is not None and fitted.model != index.manifest["model"]["digest"]:
        message = "the calibration is of another model's cosines"
        raise ArtifactError(message, where=str(index.folder), hint="revelator index calibrate")
    return source


def _bounded(index: Index, query: Query, k: int, vectors: dict[str, np.ndarray], how: LogicalSettings) -> Found:
    assert index.vectors is not None

    def score(term: str, cosines: np.ndarray) -> np.ndarray:
        return _likely(term, cosines, how)

    total, places = search_bounded(query, k, index.vectors.matrix, vectors, score, how.operators)
    return Found(total[total > 0], places[total > 0], True, len(index))


def checked(query: Query | str) -> Query:
    """The query, parsed. Raises ExpressionError, with the place, for one that `check` calls empty or too long."""
    text = query if isinstance(query, str) else logic.render(query)
    query = logic.parse(text)
    for found in logic.check(query):
        if found.code in ("empty-term", "too-many-terms"):
            raise fault(text, found.code, found.message, found.start, found.end, found.hint)
    return query


def recall(index: Index, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS) -> float:
    """The share of the exact best `k` that candidates find."""
    wanted = run(index, query, k, replace(settings, exact=True)).places
    got = run(index, query, k, replace(settings, exact=False)).places
    return len(np.intersect1d(wanted, got)) / len(wanted) if len(wanted) else 1.0


def positive_text(query: Query) -> str:
    """The terms that are asked for, as one text; empty if all are excluded."""
    return ", ".join(dict.fromkeys(text for text, negated in literals(query) if not negated))


def _embedded(index: Index, query: Query, terms: tuple[str, ...], plain: bool) -> np.ndarray:
    """Unit vectors of the terms, and of the positive terms together if they are wanted, in one batch."""
    if index.vectors is None:
        raise ConfigError("this index holds no vectors", where=str(index.folder), hint="build it with --kind dense")
    text = positive_text(query) if plain else ""
    return index.encoder.queries([*terms, text] if text else terms)


def _cosines(index: Index, vectors: np.ndarray, places: np.ndarray | None) -> np.ndarray:
    """Cosines of each vector with all documents or those at `places`, shape (vectors, documents)."""
    if not len(vectors):
        return np.zeros((0, len(index)), np.float32)
    assert index.vectors is not None
    return products(index.vectors.matrix, vectors, places)


def _score(
    index: Index, term: str, cosines: np.ndarray | None, source: Source, places: np.ndarray | None, how: LogicalSettings
) -> np.ndarray:
    """The term's score in [0, 1] for each document."""
    scores = raw_scores(index, term, cosines, source, places)
    if how.calibration == "self":
        return self_labelled(scores)(scores)
    return _likely(term, scores, how)


def raw_scores(
    index: Index, term: str, cosines: np.ndarray | None, source: Source, places: np.ndarray | None
) -> np.ndarray:
    """The term's score for each document, or those at `places`, before it is calibrated or cut."""
    parts = [] if cosines is None else [cosines]
    if source != "dense":
        sparse = sparse_scores(index, term)
        parts.append(sparse if places is None else sparse[places])
    return parts[0] if len(parts) == 1 else (parts[0] + parts[1]) / 2


def _likely(term: str, scores: np.ndarray, how: LogicalSettings) -> np.ndarray:
    """Scores in [0, 1] by the calibration that is given, or none."""
    if isinstance(how.calibration, Calibration):
        return how.calibration(scores)
    if isinstance(how.calibration, Calibrations):
        return how.calibration.of(term)(scores)
    return np.clip(scores, 0, 1)


def sparse_scores(index: Index, term: str) -> np.ndarray:
    """BM25 of a term's words over the term's best score in the corpus, in [0, 1]."""
    if index.bm25 is None:
        raise ConfigError(
            "this index holds no BM25 scores", where=str(index.folder), hint="build it with --kind hybrid"
        )
    scores = index.bm25.scores(term)
    return scores / max(float(scores.max(initial=0)), 1e-9)


def _candidates(
    index: Index, query: Query, terms: tuple[str, ...], vectors: np.ndarray, how: LogicalSettings
) -> np.ndarray | None:
    """Positions to score, in order; None for all."""
    assert index.vectors is not None
    if how.exact or (how.exact is None and index.vectors.matrix.nbytes <= MEMORY * psutil.virtual_memory().total):
        return None
    row = {term: vectors[i] for i, term in enumerate(terms)}
    normal = normal_form(query)
    directions = [-row[text] if negated else row[text] for text, negated in literals(normal)]
    for part in normal.operands if isinstance(normal, Or) else (normal,):
        total = sum(-row[text] if negated else row[text] for text, negated in literals(part))
        directions.append(total / max(float(np.linalg.norm(total)), 1e-9))
    proposed = index.vectors.candidates(np.stack(directions), min(len(index), how.candidates))
    return np.unique(proposed[proposed >= 0])
