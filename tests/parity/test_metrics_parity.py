"""Metrics against implementations of others, and against cases worked by hand from the definitions they cite."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score, ndcg_score, roc_auc_score
from sklearn.preprocessing import MultiLabelBinarizer

from evaluation.metrics.bootstrap import bootstrap
from evaluation.metrics.retrieval import compute_ndcg
from revelator.scores import ANSWER_RULES, roc_auc, score_answer


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9]), st.booleans()), min_size=2, max_size=60))
def test_area_under_the_curve_is_that_of_scikit_learn_with_ties(rows: list[tuple[float, bool]]) -> None:
    scores, positive = zip(*rows, strict=True)
    if len(set(positive)) == 2:
        assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))


WORDS = st.lists(st.sampled_from(["lima", "oslo", "rome", "1912"]), min_size=1, max_size=8)


def numbered(words: list[str]) -> list[tuple[str, int]]:
    """A bag of words as a set: each word with how often it has come before."""
    seen: Counter[str] = Counter()
    pairs = []
    for word in words:
        pairs.append((word, seen[word]))
        seen[word] += 1
    return pairs


@given(WORDS, WORDS)
def test_answer_f1_is_scikit_learns_f1_over_the_bag_of_words(ours: list[str], theirs: list[str]) -> None:
    table = MultiLabelBinarizer().fit_transform([numbered(ours), numbered(theirs)])
    expected = f1_score(table[1], table[0])
    for rule in ANSWER_RULES:
        assert score_answer(" ".join(ours), [" ".join(theirs)], rule).f1 == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.05, 0.4, 0.9])
def test_percentile_intervals_agree_with_scipys_bootstrap(share: float) -> None:
    values = (np.random.default_rng(17).random(400) < share).astype(float)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
    ).confidence_interval
    ours = bootstrap(values)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=0.006), pytest.approx(theirs.high, abs=0.006))


# Worked by hand: the words left after normalising, then 2·shared / (predicted + gold).
WORKED = [
    # SQuAD 1.1 (Rajpurkar et al. 2016, section 6.1): punctuation and articles are ignored; macro F1 over bags of words.
    ("squad", "the Lake Balaton.", "Lake Balaton", 1.0, 1.0),
    ("squad", "in the late 1990s", "late 1990s", 0.0, 2 * 2 / 5),
    ("squad", "Rome, Rome", "Rome", 0.0, 2 * 1 / 3),
    ("squad", "north-east", "north east", 0.0, 0.0),  # the hyphen goes, no space comes
    # HotpotQA's evaluation script (Yang et al. 2018): a yes, no or noanswer that differs has precision and recall 0.
    ("hotpotqa", "Yes, both", "yes", 0.0, 0.0),
    ("hotpotqa", "Yes.", "yes", 1.0, 1.0),
    ("hotpotqa", "no one", "no", 0.0, 0.0),
    # MuSiQue's answer metric (Trivedi et al. 2022): without words on a side, F1 is whether both sides have none.
    ("musique", "", "", 1.0, 1.0),
    ("musique", "", "7", 0.0, 0.0),
    ("musique", "yes it was", "yes", 0.0, 2 * 1 / 4),
]


@pytest.mark.parametrize(("rule", "prediction", "gold", "em", "f1"), WORKED)
def test_answers_score_as_worked_by_hand_from_the_official_definitions(
    rule: str, prediction: str, gold: str, em: float, f1: float
) -> None:
    score = score_answer(prediction, [gold], rule)
    assert (score.em, score.f1) == (em, pytest.approx(f1))


@given(st.permutations(range(25)), st.sets(st.integers(0, 24), min_size=1), st.integers(1, 30))
def test_ndcg_of_binary_gains_is_scikit_learn_s(ranked: list[int], relevant: set[int], depth: int) -> None:
    gains = [[float(item in relevant) for item in ranked]]
    assert compute_ndcg(ranked, relevant, depth) == pytest.approx(ndcg_score(gains, [range(25, 0, -1)], k=depth))
