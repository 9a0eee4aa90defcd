"""What is measured, and by which rule: answers, plans, labels, retrieval.

Every answer metric names its normaliser, because published figures differ by it:

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
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from evaluation.measures.plan_match import arguments_match, bound_alike, names_copied, structure_of
from revelator.errors import ExpressionError
from revelator.plans import Expression, art, check, leaves, letters_key, parse

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


def normalise(text: str) -> str:
    """SQuAD's text of an answer: lower case, ASCII punctuation removed, a/an/the removed, white space folded."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


@dataclass(frozen=True)
class AnswerRule:
    """How a predicted text is held against one gold text. `guard`: HotpotQA's rule for yes, no and noanswer;
    `empty_equal`: MuSiQue's rule that two texts without words score 1; `hyphens`: AtomR's, that they part words."""

    name: str
    guard: bool = False
    empty_equal: bool = False
    hyphens: bool = False

    def normalise(self, text: str) -> str:
        return normalise(text.replace("-", " ") if self.hyphens else text)

    def exact(self, prediction: str, gold: str) -> float:
        return float(self.normalise(prediction) == self.normalise(gold))

    def contained(self, prediction: str, gold: str) -> float:
        """1 if the normalised gold stands in the normalised prediction; a gold without words stands in nothing."""
        text = self.normalise(gold)
        return float(bool(text) and text in self.normalise(prediction))

    def f1(self, prediction: str, gold: str) -> float:
        """Harmonic mean of precision and recall over the bag of words."""
        return self.overlap(self.normalise(prediction), self.normalise(gold))

    def overlap(self, predicted: str, wanted: str) -> float:
        """`f1` of texts that are normalised."""
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


def answer_score(prediction: str, golds: Sequence[str], rule: str = "squad") -> AnswerScore:
    """EM, Acc (gold contained in the answer) and F1, each the best over `golds` (one answer and its aliases)."""
    by = ANSWER_RULES[rule]
    predicted, wanted = by.normalise(prediction), [by.normalise(gold) for gold in golds]
    contained = any(text and text in predicted for text in wanted)
    f1 = max([by.overlap(predicted, text) for text in wanted], default=0.0)
    return AnswerScore(float(predicted in wanted), float(contained), f1)


def list_score(predictions: Sequence[str], golds: Sequence[str]) -> AnswerScore:
    """The same three for an answer that is a list of values, all of them wanted: `em` the two sets are equal, `acc` the
    share of gold values that stand in some prediction (HANRAG's compound accuracy, section 6: each gold entity present
    in the prediction counts), `f1` over whole values; SQuAD's text throughout."""
    ours, wanted = {normalise(p) for p in predictions} - {""}, {normalise(g) for g in golds} - {""}
    if not wanted:
        return AnswerScore(0.0, 0.0, 0.0)
    found = sum(any(gold in text for text in ours) for gold in wanted)
    f1 = 2 * len(ours & wanted) / (len(ours) + len(wanted))
    return AnswerScore(float(ours == wanted), found / len(wanted), f1)


@dataclass(frozen=True)
class PlanScore:
    """`valid`: parses and checks (rule set `scoped`); the others hold a parsed plan against gold, checked or not."""

    valid: bool
    letters: bool  # same shape up to the order of `+`
    leaves: bool  # same number of leaves
    exact: bool  # the same tree, word for word
    bound: bool  # the same, whatever placeholders are called (`plan_match.bound_alike`)
    arguments: bool  # the same graph over the same names and placeholders (`plan_match.arguments_match`)
    names: bool  # every name that question and gold plan share, copied exactly


def plan_score(output: str, gold: Expression, question: str, names: Sequence[str]) -> PlanScore:
    """Scores the text that a model wrote; a text that does not parse scores nothing. `names`: those that the question
    and its gold plan share (the column `entities` of a set)."""
    try:
        plan = parse(output)
    except ExpressionError:
        return PlanScore(False, False, False, False, False, False, False)
    return PlanScore(
        valid=not check(plan),
        letters=letters_key(plan) == letters_key(gold),
        leaves=len(leaves(plan)) == len(leaves(gold)),
        exact=plan == gold,
        bound=bound_alike(plan, gold),
        arguments=arguments_match(plan, gold, names),
        names=names_copied(plan, question, names),
    )


@dataclass(frozen=True)
class TreeScore:
    """`valid`: parses and checks; `structure` and `exact` hold it against gold."""

    valid: bool
    structure: bool  # same operators and references, up to the order of what needs nothing of one another
    exact: bool  # the same tree, word for word


def tree_score(output: str, gold: art.Art) -> TreeScore:
    """Scores the text that a model wrote; a text that is no tree scores nothing."""
    try:
        tree = art.parse(output)
    except ExpressionError:
        return TreeScore(False, False, False)
    valid = not art.check(tree)
    return TreeScore(valid, valid and structure_of(tree) == structure_of(gold), tree == gold)


@lru_cache(maxsize=65_536)
def title_key(title: str) -> str:
    """Titles that differ in case, width, underscores or spaces are one title; white space around punctuation is no
    part of it, so a tokenised `Titanic ( 1997 film )` is `Titanic (1997 film)`."""
    text = unicodedata.normalize("NFKC", title).casefold().replace("_", " ")
    return " ".join(re.sub(r"([^\w\s])", r" \1 ", text).split())


def title_recall(rankings: Sequence[Sequence[str]], gold: Sequence[str], k: int) -> float:
    """Share of the distinct gold titles among the first `k` titles of any ranking (one ranking: recall@k).
    Raises ValueError without gold titles: their recall is not defined."""
    wanted = {title_key(title) for title in gold}
    if not wanted:
        raise ValueError("recall of no gold titles is not defined")
    found = {title_key(title) for ranking in rankings for title in ranking[:k]}
    return len(wanted & found) / len(wanted)


def title_ndcg(ranking: Sequence[str], gold: Sequence[str], k: int) -> float:
    """nDCG@k of the distinct gold titles; a title that is found again counts where it stood first."""
    keys = list(dict.fromkeys(map(title_key, ranking)))
    return ndcg(keys, set(map(title_key, gold)), k)


def title_scores(ranking: Sequence[str], gold: Sequence[str], cutoffs: Sequence[int]) -> dict[str, float]:
    """`recall@k` of each cutoff, `recall` of the whole ranking and `ndcg@10`, with each title read once."""
    keys, wanted = list(dict.fromkeys(map(title_key, ranking))), set(map(title_key, gold))
    places = [place for place, key in enumerate(keys) if key in wanted]
    found = {f"recall@{k}": bisect_left(places, k) / len(wanted) for k in cutoffs}
    return found | {"recall": len(places) / len(wanted), "ndcg@10": ndcg(keys, wanted)}


def ndcg(ranked: Sequence[Hashable], relevant: Collection[Hashable], depth: int = 10) -> float:
    """nDCG of binary gains at `depth` (Järvelin and Kekäläinen 2002); `relevant` is not empty."""
    discounts = _discounts(depth)
    gained = sum([gain for item, gain in zip(ranked, discounts, strict=False) if item in relevant])
    return gained / sum(discounts[: len(relevant)])


@lru_cache
def _discounts(depth: int) -> tuple[float, ...]:
    """What a relevant item is worth at each place."""
    return tuple(1 / math.log2(place + 2) for place in range(depth))


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Share of equal pairs; nan for none."""
    return float(np.mean([p == g for p, g in zip(predicted, gold, strict=True)])) if gold else float("nan")


def balanced_accuracy(predicted: ArrayLike, gold: ArrayLike) -> float:
    """Mean over the classes of `gold` of the share of their rows that is right; nan for none."""
    ours, truth = np.asarray(predicted), np.asarray(gold)
    shares = [float(np.mean(ours[truth == label] == label)) for label in np.unique(truth)]
    return float(np.mean(shares)) if shares else float("nan")


def roc_auc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Probability that a positive scores above a negative, ties counting one half (Mann-Whitney U); nan when one of
    the two classes is empty. `scores` and `positive` have shape (n,)."""
    values, truth = np.asarray(scores, dtype=float), np.asarray(positive, dtype=bool)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks = np.cumsum(counts) - (counts - 1) / 2
    wins = midranks[inverse][truth].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))
