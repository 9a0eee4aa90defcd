"""The metrics of a run against scikit-learn, pytrec_eval and torchmetrics, and against cases by hand."""

from __future__ import annotations

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix
from torchmetrics.text import SQuAD

from evaluation.harness.run_metrics import count_confusion
from evaluation.metrics.retrieval import compute_ndcg, score_titles
from revelator.scores import normalise, score_answer, score_list_answer

TEXTS = st.lists(
    st.sampled_from(["The", "a", "Lima", "lima,", "Oslo.", "1912", "north-east", "“no”", "é"]), max_size=6
).map(" ".join)


@settings(max_examples=50)
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_em_and_f1_are_torchmetrics_squad_over_all_aliases(prediction: str, golds: list[str]) -> None:
    metric = SQuAD()
    metric.update(
        [{"prediction_text": prediction, "id": "1"}],
        [{"answers": {"answer_start": [0] * len(golds), "text": golds}, "id": "1"}],
    )
    theirs, ours = metric.compute(), score_answer(prediction, golds, "squad")
    assert ours.em * 100 == pytest.approx(theirs["exact_match"].item())
    # Theirs follows SQuAD 2.0, where two texts without words are equal: MuSiQue's rule, and SQuAD 1.1's where none is.
    assert score_answer(prediction, golds, "musique").f1 * 100 == pytest.approx(theirs["f1"].item(), abs=1e-3)
    if all(normalise(gold) for gold in golds):
        assert ours.f1 * 100 == pytest.approx(theirs["f1"].item(), abs=1e-3)


TITLES = [f"T{n}" for n in range(12)]


@given(
    st.permutations(TITLES), st.sets(st.sampled_from(TITLES), min_size=1, max_size=5), st.sampled_from([1, 2, 5, 10])
)
def test_recall_and_ndcg_of_titles_are_those_of_trec_eval(ranking: list[str], gold: set[str], k: int) -> None:
    evaluator = pytrec_eval.RelevanceEvaluator({"q": dict.fromkeys(gold, 1)}, {f"ndcg_cut.{k}", f"recall.{k}"})
    theirs = evaluator.evaluate({"q": {title: float(-place) for place, title in enumerate(ranking)}})["q"]
    assert compute_ndcg(ranking, gold, k) == pytest.approx(theirs[f"ndcg_cut_{k}"])
    at_once = score_titles(ranking, sorted(gold), [k])
    assert at_once[f"recall@{k}"] == pytest.approx(theirs[f"recall_{k}"])
    assert at_once["ndcg@10"] == compute_ndcg(ranking, gold, 10) and at_once["recall"] == 1


ROUTES = ["straightforward", "single", "compound", "complex"]


@given(st.lists(st.tuples(st.sampled_from(ROUTES), st.sampled_from(ROUTES)), min_size=1, max_size=80))
def test_the_confusion_matrix_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = zip(*pairs, strict=True)
    theirs = confusion_matrix(gold, predicted, labels=ROUTES)
    ours = count_confusion(pairs)
    assert [[ours.get(g, {}).get(p, 0) for p in ROUTES] for g in ROUTES] == theirs.tolist()


# AtomR (section 4.1) scores by token F1 after its own normaliser, which parts words at hyphens.
def test_atomr_parts_words_at_hyphens_and_squad_does_not() -> None:
    assert score_answer("north-east", ["north east"], "atomr").em == 1.0
    assert score_answer("north-east", ["north east"], "squad").f1 == 0.0
    assert score_answer("twenty-one men", ["twenty"], "atomr").f1 == pytest.approx(2 * 1 / 4)
    assert score_answer("yes, both", ["yes"], "atomr").f1 == 0.0


# HANRAG (section 6): the gold of a compound question is taken apart, each value found in the prediction counts.
@pytest.mark.parametrize(
    ("predictions", "golds", "accuracy"),
    [(["1941 in Lima"], ["1941", "Lima"], 1.0), (["Lima"], ["1941", "Lima"], 0.5), ([], ["Lima"], 0.0)],
)
def test_compound_accuracy_worked_by_hand(predictions: list[str], golds: list[str], accuracy: float) -> None:
    assert score_list_answer(predictions, golds).acc == accuracy
