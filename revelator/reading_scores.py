"""How well a reader reads: answers by SQuAD's rule, lists by their spans, and whether the passage answers at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from revelator.reading import Outcome, ReadingRow
from revelator.scores import normalise, roc_auc, score_answer


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


def score_outcomes(rows: Sequence[ReadingRow], outcomes: Sequence[Outcome]) -> ReadingScores:
    answerable = [(row, outcome) for row, outcome in zip(rows, outcomes, strict=True) if row.is_answerable]
    scores = [score_answer(", ".join(outcome.answers), _list_golds(row)) for row, outcome in answerable]
    probabilities = [outcome.probability for outcome in outcomes]
    return ReadingScores(
        n=len(rows),
        em=_average([score.em for score in scores]),
        f1=_average([score.f1 for score in scores]),
        no_answer_auc=roc_auc(probabilities, [row.is_answerable for row in rows]),
        span_f1=_score_spans([(row, outcome) for row, outcome in answerable if row.all_of]),
    )


def _list_golds(row: ReadingRow) -> list[str]:
    if row.verdict:
        return [row.verdict]
    texts = [answer.text for answer in row.answers]
    return [", ".join(texts)] if row.all_of else texts


def _score_spans(lists: Sequence[tuple[ReadingRow, Outcome]]) -> float:
    shared = named = wanted = 0
    for row, outcome in lists:
        ours, theirs = {normalise(text) for text in outcome.answers}, {normalise(a.text) for a in row.answers}
        shared, named, wanted = shared + len(ours & theirs), named + len(ours), wanted + len(theirs)
    return 2 * shared / (named + wanted) if lists else float("nan")


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
