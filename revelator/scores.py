"""Compares answers with gold by the rule of their benchmark, and measures how well scores separate two classes: of a
system's answers, and of what a reader reads. A logistic regression says how likely something is, given its scores.

Every answer metric names its normaliser, because published figures differ in it:

* `squad`: lower case, no punctuation, no articles, single spaces (SQuAD 1.1, Rajpurkar et al. 2016).
* `hotpotqa`: the same text, and a yes, no or noanswer shares nothing with any other text (HotpotQA, Yang et al. 2018;
  2WikiMultiHopQA scores by the same rule).
* `musique`: SQuAD's text, the best over the answer and its aliases, and two texts of no words are equal (MuSiQue,
  Trivedi et al. 2022).
* `atomr`: HotpotQA's rule after each hyphen became a space, so `north-east` is two words (AtomR, Xin et al. 2024).
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from revelator.reading import ReadingRow

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
NO_ANSWER = "noanswer"
CLOSED_ANSWERS = frozenset({"yes", "no", NO_ANSWER})


def normalise(text: str) -> str:
    """Normalises as SQuAD does: lower case, no ASCII punctuation, no a/an/the, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


@dataclass(frozen=True)
class AnswerRule:
    """Compares a predicted text with one gold text. `guard`: HotpotQA's rule for yes, no and noanswer. `empty_equal`:
    MuSiQue's rule that two texts without words score 1. `hyphens`: AtomR's rule that a hyphen separates words."""

    name: str
    guard: bool = False
    empty_equal: bool = False
    hyphens: bool = False

    def normalise(self, text: str) -> str:
        return normalise(text.replace("-", " ") if self.hyphens else text)

    def overlap(self, predicted: str, wanted: str) -> float:
        """Returns the harmonic mean of precision and recall over the bags of words of two normalised texts."""
        if self.guard and predicted != wanted and CLOSED_ANSWERS & {predicted, wanted}:
            return 0.0
        ours, theirs = predicted.split(), wanted.split()
        if self.empty_equal and not (ours and theirs):
            return float(ours == theirs)
        shared = sum([min(ours.count(word), theirs.count(word)) for word in {*ours}.intersection(theirs)])
        return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


ANSWER_RULES = {
    rule.name: rule
    for rule in (
        AnswerRule("squad"),
        AnswerRule("hotpotqa", guard=True),
        AnswerRule("musique", empty_equal=True),
        AnswerRule("atomr", guard=True, hyphens=True),
    )
}


@dataclass(frozen=True)
class AnswerScore:
    em: float
    acc: float
    f1: float


def score_answer(prediction: str, golds: Sequence[str], rule: str = "squad") -> AnswerScore:
    """Computes EM, Acc (the answer contains gold) and F1, each the best over `golds` (one answer and its aliases)."""
    by = ANSWER_RULES[rule]
    predicted, wanted = by.normalise(prediction), [by.normalise(gold) for gold in golds]
    contained = any(text and text in predicted for text in wanted)
    f1 = max([by.overlap(predicted, text) for text in wanted], default=0.0)
    return AnswerScore(float(predicted in wanted), float(contained), f1)


def score_list_answer(predictions: Sequence[str], golds: Sequence[str]) -> AnswerScore:
    """Computes the same three for an answer that is a list of values, all of them wanted: `em` the two sets are equal,
    `acc` the share of gold values that stand in some prediction (HANRAG's compound accuracy, section 6: each gold
    entity present in the prediction counts), `f1` over whole values; SQuAD's text throughout."""
    ours, wanted = {normalise(p) for p in predictions} - {""}, {normalise(g) for g in golds} - {""}
    if not wanted:
        return AnswerScore(0.0, 0.0, 0.0)
    found = sum(any(gold in text for text in ours) for gold in wanted)
    f1 = 2 * len(ours & wanted) / (len(ours) + len(wanted))
    return AnswerScore(float(ours == wanted), found / len(wanted), f1)


def roc_auc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Computes the probability that a positive scores above a negative; ties count one half (Mann-Whitney U). nan if
    one of the two classes is empty. `scores` and `positive` have shape (n,)."""
    values, truth = np.asarray(scores, dtype=float), np.asarray(positive, dtype=bool)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks = np.cumsum(counts) - (counts - 1) / 2
    wins = midranks[inverse][truth].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))


def fit_logistic(scores: np.ndarray, targets: np.ndarray, ridge: float = 0.0) -> tuple[float, float]:
    """Fits weight and bias of P(target) = 1 / (1 + exp(-(weight · score + bias))) by highest likelihood.

    `scores` and `targets`, which are in [0, 1], are (n,). The weight is not negative: a higher score never makes a
    target less likely. `ridge` weighs its square, so that rows which a threshold separates leave it finite.
    """
    from scipy.optimize import minimize  # takes 0.4 s to import, and only who calibrates needs it

    def measure_loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = values
        logits = scores * weight + bias
        loss = (np.logaddexp(0, logits) - targets * logits).sum() + ridge / 2 * weight**2
        beyond = 1 / (1 + np.exp(-np.clip(logits, -60, 60))) - targets
        return float(loss), np.array([scores @ beyond + ridge * weight, beyond.sum()])

    weight, bias = minimize(measure_loss, [0.1, 0.0], jac=True, bounds=[(0, None), (None, None)], tol=1e-12).x
    return float(weight), float(bias)


@dataclass(frozen=True, slots=True)
class ReadingScores:
    """`em` and `f1` over the answerable rows, each read as if it had an answer; a list counts as its items joined.

    `no_answer_auc`: of the probability that the passage answers, answerable rows against the others. `span_f1`: of the
    exact items of list answers, over all of them at once (MultiSpanQA's exact match, Li et al. 2022). nan where no row
    is of the kind.
    """

    n: int
    em: float
    f1: float
    no_answer_auc: float
    span_f1: float

    def to_json(self) -> dict[str, float | None]:
        """The five figures, None for nan."""
        return {name: None if math.isnan(value) else value for name, value in asdict(self).items()}


class Outcome(Protocol):
    """What a reader made of a row; `probability` that the passage answers the question."""

    @property
    def answers(self) -> Sequence[str]: ...

    @property
    def probability(self) -> float: ...


def score_outcomes(rows: Sequence[ReadingRow], outcomes: Sequence[Outcome]) -> ReadingScores:
    answerable = [(row, outcome) for row, outcome in zip(rows, outcomes, strict=True) if row.is_answerable]
    scores = [score_reading(row, outcome.answers) for row, outcome in answerable]
    probabilities = [outcome.probability for outcome in outcomes]
    return ReadingScores(
        n=len(rows),
        em=_average([score.em for score in scores]),
        f1=_average([score.f1 for score in scores]),
        no_answer_auc=roc_auc(probabilities, [row.is_answerable for row in rows]),
        span_f1=_score_spans([(row, outcome) for row, outcome in answerable if row.is_list]),
    )


def list_golds(row: ReadingRow) -> list[str]:
    """The texts of which each is the whole answer; none where the passage does not say it."""
    if row.verdict:
        return [row.verdict]
    texts = [answer.text for answer in row.answers]
    return [", ".join(texts)] if row.is_list and texts else texts


def score_reading(row: ReadingRow, answers: Sequence[str]) -> AnswerScore:
    """By SQuAD's rule, of the answers joined."""
    return score_answer(", ".join(answers), list_golds(row))


def count_items(row: ReadingRow, answers: Sequence[str]) -> tuple[int, int]:
    """Of a list answer: twice the exact items that are right, and the items that are named and that are wanted. F1 is
    the ratio of the sums of both over rows."""
    ours, theirs = {normalise(text) for text in answers}, {normalise(answer.text) for answer in row.answers}
    return 2 * len(ours & theirs), len(ours) + len(theirs)


def _score_spans(lists: Sequence[tuple[ReadingRow, Outcome]]) -> float:
    counts = [count_items(row, outcome.answers) for row, outcome in lists]
    return sum(right for right, _ in counts) / sum(both for _, both in counts) if lists else float("nan")


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
