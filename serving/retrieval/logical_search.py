"""Logical retrieval (ITLR, Faltings, Wei and Bao 2024): a query's operators compose its terms' scores.

Terms are embedded in one batch, and every document is scored by one matrix product; of an approximate index those that
a search for one of the terms brings (`CANDIDATES` a term), which the terms that are excluded then sink. A score of a
term is brought to [0, 1] before: cosines below 0 are 0, BM25 is divided by the term's best score in the corpus, and a
calibration turns scores into probabilities that a document is about a term: σ((s - τ)·λ) (appendix E).

NOT is carried down to the terms first (De Morgan): composed as it stands, 1 - (x + y) can be negative, and the product
of two such parts would rank highest what the query excludes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, StrictBool, ValidationError

from revelator.config import Strict, check_config, find_first_fault
from revelator.errors import ArtifactError, ConfigError, DataError, InvalidRequest
from revelator.files import write_json
from revelator.plans import logic
from revelator.plans.faults import fault
from revelator.plans.logic import And, Not, Query, Term, move_negations_inwards
from revelator.scores import fit_logistic
from serving.protocols import OWNER, PUBLIC, Scope, SearchResult
from serving.retrieval.dense import find_best
from serving.retrieval.engine import SearchIndex

CANDIDATES = 1_000  # passages a term that are scored where an index does not compare with all
POSITIVES = NEGATIVES = 20  # documents a term, as in the paper
SMALLEST = 1e-3  # under 1/x, what a score of 0 counts as
LABEL = 'each line is one JSON object: {"term": "gene therapy", "passage": "its id", "relevant": true}'
Source = Literal["dense", "bm25", "both"]
Conjunction = Literal["product", "sum", "min"]
Disjunction = Literal["sum", "max"]
Negation = Literal["complement", "reciprocal"]
_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "product": np.multiply,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
}


class Operators(Strict):
    """How the scores of terms are combined (ITLR, table 2): AND as x·y, x+y or min; OR as x+y or max; NOT as 1-x or
    1/x. The default is the paper's."""

    conjunction: Conjunction = "product"
    disjunction: Disjunction = "sum"
    negation: Negation = "complement"


DEFAULT = Operators()


def compose(query: Query, scores: Mapping[str, np.ndarray], operators: Operators = DEFAULT) -> np.ndarray:
    """One score a document, from the scores of each term in [0, 1]; arrays of one shape in, one of that shape out."""
    return _compose(move_negations_inwards(query), scores, operators)


def _compose(query: Query, scores: Mapping[str, np.ndarray], operators: Operators) -> np.ndarray:
    if isinstance(query, Term):
        return scores[query.text]
    if isinstance(query, Not):
        inner = _compose(query.operand, scores, operators)
        return 1 - inner if operators.negation == "complement" else 1 / np.maximum(inner, SMALLEST)
    join = _BINARY[operators.conjunction if isinstance(query, And) else operators.disjunction]
    return reduce(join, (_compose(operand, scores, operators) for operand in query.operands))


@dataclass(frozen=True)
class ScoreCalibration:
    """σ((s - threshold)·slope): `threshold` is the score at which a document is as likely about the term as not."""

    threshold: FiniteFloat
    slope: Annotated[FiniteFloat, Field(gt=0)]

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities, of the shape of `scores`."""
        return 1 / (1 + np.exp(np.clip((self.threshold - scores) * self.slope, -60, 60)))


class Calibrations(Strict):
    """The file of `revelator index calibrate`: a calibration for each term that was labelled, and `general`, of all
    labels, for every other.

    They hold for scores of one `source`, and where these are cosines for one model (its digest; "" for BM25).
    """

    format: Literal["revelator-calibration-1"] = "revelator-calibration-1"
    source: Source
    model: str
    general: ScoreCalibration
    terms: dict[str, ScoreCalibration]

    def of(self, term: str) -> ScoreCalibration:
        return self.terms.get(term, self.general)


def fit_calibration(scores: ArrayLike, labels: ArrayLike) -> ScoreCalibration:
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
    slope, shift = fit_logistic(x, target)
    slope = max(slope, 1e-3)
    return ScoreCalibration(float(center - shift / slope * scale), float(slope / scale))


def calibrate_unlabelled(scores: np.ndarray) -> ScoreCalibration:
    """A calibration without labels: the term's best documents stand for positives, others at random for negatives."""
    positives = min(POSITIVES, max(1, len(scores) // 2))
    order = np.argsort(-scores, kind="stable")
    rest = np.random.default_rng(0).permutation(order[positives:])[:NEGATIVES]
    chosen = np.concatenate([order[:positives], rest])
    return fit_calibration(scores[chosen], np.arange(len(chosen)) < positives)


def read_calibrations(path: Path) -> Calibrations:
    """A file of calibrations. Raises ArtifactError."""
    hint = "make it with `revelator index calibrate DIR LABELS.jsonl --out FILE`"
    try:
        return Calibrations.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"the calibration cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except ValidationError as error:
        reason = ": ".join(filter(None, find_first_fault(error)))
        raise ArtifactError(f"not a calibration of this version: {reason}", where=str(path), hint=hint) from error


class LogicalSettings(Operators):
    """How logical queries are run: by which operators, by which scores of terms, and how these are calibrated."""

    source: Source | None = None  # cosines, BM25, or the mean of both (default: cosines where the index has vectors)
    calibration: Literal["none", "self"] | Path = "none"  # `self`: by each term's own best documents; or a file

    @cached_property
    def calibrations(self) -> Calibrations | None:
        """What the file says, where the calibration is one. Raises ArtifactError."""
        return read_calibrations(self.calibration) if isinstance(self.calibration, Path) else None

    def resolve(self, base: Path = Path()) -> LogicalSettings:
        """The same with its file, which a relative path names from `base`. Raises ArtifactError for one that is no
        calibration."""
        if not isinstance(self.calibration, Path):
            return self
        found = self.model_copy(update={"calibration": (base / self.calibration).resolve()})
        assert found.calibrations
        return found


_DEFAULTS = LogicalSettings()


def read_logical_options(options: Sequence[str], option: str = "--logic") -> LogicalSettings | None:
    """What `--logic NAME=VALUE` says, or another `option`; None without any. Raises ConfigError and ArtifactError."""
    if wrong := [text for text in options if "=" not in text]:
        raise ConfigError(f"not NAME=VALUE: {wrong[0]!r}", where=option, hint=f"{option} negation=reciprocal")
    settings = check_config(dict(text.split("=", 1) for text in options), LogicalSettings, option).resolve()
    return settings if options else None


def search_logical(
    index: SearchIndex, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS, scope: Scope = PUBLIC
) -> SearchResult:
    """The `k` best passages for a logical query. Raises ExpressionError, InvalidRequest, ConfigError."""
    scores, places, scored = rank_logical(index, query, k, settings, scope)
    return SearchResult(index.read_passages(scores, places, scope), scored=(scored, index.count_found(scope)))


def rank_logical(
    index: SearchIndex, query: Query | str, k: int, settings: LogicalSettings = _DEFAULTS, scope: Scope = PUBLIC
) -> tuple[np.ndarray, np.ndarray, int]:
    """(scores, places) of the `k` best passages of the scope, and how many were scored: the others count for nothing.
    One of score 0 holds nothing that was asked for, and is not found.

    Raises ExpressionError, InvalidRequest, ConfigError."""
    query = read_query(query)
    if k < 1:
        raise InvalidRequest(f"k must be 1 or more, not {k}")
    source = choose_source(index, settings)
    terms = logic.list_terms(query)
    vectors, sparse = embed_terms(index, terms, source), source != "dense"
    candidates = index.find_candidates(terms, vectors, sparse, CANDIDATES, scope)
    if candidates is not None and not len(candidates):
        return np.empty(0), candidates, 0
    raw = index.score_terms(terms, vectors, sparse, candidates, scope)
    scores = {term: _calibrate(term, own, settings) for term, own in zip(terms, raw, strict=True)}
    total = compose(query, scores, settings)
    chosen = find_best(total, k) if len(total) else np.empty(0, np.int64)
    chosen = chosen[total[chosen] > 0]
    return total[chosen], chosen if candidates is None else candidates[chosen], len(total)


def choose_source(index: SearchIndex, settings: LogicalSettings = _DEFAULTS) -> Source:
    """The scores to take: those that are named, or that a file of calibrations fits, or cosines if the index has
    vectors. Raises ConfigError and ArtifactError for a calibration of other scores."""
    calibrations = settings.calibrations
    if calibrations is None:
        return settings.source or ("dense" if index.settings.dense else "bm25")
    source = settings.source or calibrations.source
    if calibrations.source != source:
        hint = f"take source {calibrations.source}, or calibrate anew"
        raise ConfigError(f"the calibration is of source {calibrations.source}, not {source}", hint=hint)
    if source != "bm25" and index.settings.dense and calibrations.model != index.manifest["model"]["digest"]:
        message = "the calibration is of another model's cosines"
        raise ArtifactError(message, where=index.where, hint="revelator index calibrate")
    return source


def read_query(query: Query | str) -> Query:
    """The query, parsed. Raises ExpressionError, with the place, for one that `check` calls empty or too long."""
    text = query if isinstance(query, str) else logic.render(query)
    query = logic.parse(text)
    for found in logic.check(query):
        if found.code in ("empty-term", "too-many-terms"):
            raise fault(text, found.code, found.message, found.start, found.end, found.hint)
    return query


def embed_terms(index: SearchIndex, terms: Sequence[str], source: Source) -> np.ndarray | None:
    """Unit vectors of the terms, embedded in one batch; None where scores are BM25 alone. Raises ConfigError."""
    if source == "bm25":
        return None
    if not index.settings.dense:
        raise ConfigError("this index holds no vectors", where=index.where, hint="build it with --kind dense")
    return index.encoder.encode_queries(terms)


def _calibrate(term: str, scores: np.ndarray, settings: LogicalSettings) -> np.ndarray:
    """Scores in [0, 1], as the settings say."""
    if settings.calibrations:
        return settings.calibrations.of(term)(scores)
    is_own = settings.calibration == "self" and len(scores) > 1  # of a single document there is nothing to learn
    return calibrate_unlabelled(scores)(scores) if is_own else np.clip(scores, 0, 1)


# ---- labelled passages → calibrations


def _check_term(term: str) -> str:
    if not any(map(str.isalnum, term)):
        raise ValueError("it holds no word")
    return term


class Label(BaseModel):
    """Whether a passage is about a term; `where` is the place in the file that says so."""

    term: Annotated[str, AfterValidator(_check_term)]
    passage: Annotated[str, Field(coerce_numbers_to_str=True)]
    relevant: StrictBool
    where: str = ""


def read_labels(path: Path) -> list[Label]:
    """The labels of a file of JSON lines. Raises DataError with the line."""
    labels: dict[tuple[str, str], Label] = {}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    label = _read_label(line, f"{path}:{number}")
                    before = labels.setdefault((label.term, label.passage), label)
                    if before is not label:
                        message = f"passage {label.passage!r} has a label for this term already at {before.where}"
                        raise DataError(message, where=label.where)
    except OSError as error:
        raise DataError(f"the labels cannot be read: {error.strerror}", where=str(path)) from error
    if len({label.relevant for label in labels.values()}) < 2:
        raise DataError("a calibration needs labels of both kinds", where=str(path), hint=LABEL)
    return list(labels.values())


def _read_label(line: bytes, where: str) -> Label:
    try:
        return Label.model_validate_json(line).model_copy(update={"where": where})
    except ValidationError as error:
        field, reason = find_first_fault(error)
        raise DataError(f"`{field}`: {reason}" if field else reason, where=where, hint=LABEL) from error


def fit_calibrations(index: SearchIndex, labels: Sequence[Label], source: Source | None = None) -> Calibrations:
    """A calibration for all terms, and one for each term that has labels of both kinds.

    Raises DataError for a passage that the index does not hold, ConfigError for scores that it does not hold.
    """
    source = source or choose_source(index)
    places, labelled = _find_places(index, labels), defaultdict(list)
    for label in labels:
        labelled[label.term].append(label)
    vectors, sparse = embed_terms(index, list(labelled), source), source != "dense"
    scores, calibrations = [], {}
    for number, (term, own) in enumerate(labelled.items()):
        at, truth = np.array([places[label.passage] for label in own]), [label.relevant for label in own]
        vector = None if vectors is None else vectors[number : number + 1]
        scores += index.score_terms([term], vector, sparse, at, OWNER)
        if len(set(truth)) == 2:
            calibrations[term] = fit_calibration(scores[-1], truth)
    truths = [label.relevant for own in labelled.values() for label in own]
    model = index.manifest["model"]["digest"] if source != "bm25" else ""
    general = fit_calibration(np.concatenate(scores), truths)
    return Calibrations(source=source, model=model, general=general, terms=calibrations)


def _find_places(index: SearchIndex, labels: Sequence[Label]) -> dict[str, Any]:
    places = index.find_places({label.passage for label in labels})
    for label in labels:
        if label.passage not in places:
            raise DataError(f"the index holds no passage {label.passage!r}", where=label.where)
    return places


def write_calibrations(path: Path, calibrations: Calibrations) -> dict[str, Any]:
    """Writes the file of `calibration=FILE`, and returns what it says."""
    described = calibrations.model_dump(mode="json")
    write_json(path, described)
    return described
