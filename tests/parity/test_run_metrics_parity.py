"""The metrics of a run against scikit-learn, pytrec_eval, torchmetrics and networkx, and against cases by hand."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix
from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError
from torchmetrics.text import SQuAD

from evaluation.harness.run_metrics import bin_by_confidence, calibration_error, count_confusion
from evaluation.metrics.plan_graph import edit_distance, entity_coverage, graph_distance, read_sketch
from evaluation.metrics.retrieval import ndcg, score_titles
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
    assert ndcg(ranking, gold, k) == pytest.approx(theirs[f"ndcg_cut_{k}"])
    at_once = score_titles(ranking, sorted(gold), [k])
    assert at_once[f"recall@{k}"] == pytest.approx(theirs[f"recall_{k}"])
    assert at_once["ndcg@10"] == ndcg(ranking, gold, 10) and at_once["recall"] == 1


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 999), st.booleans()), min_size=1, max_size=60), st.sampled_from([5, 10, 15]))
def test_calibration_error_is_that_of_torchmetrics(rows: list[tuple[int, bool]], bins: int) -> None:
    sure = [p / 1000 for p, _ in rows if (p * bins) % 1000]  # on a border the two put an answer into different bins
    right = [r for p, r in rows if (p * bins) % 1000]
    if sure:
        theirs = BinaryCalibrationError(n_bins=bins, norm="l1")(
            torch.tensor(sure), torch.tensor(right, dtype=torch.int)
        )
        assert calibration_error(sure, right, bins) == pytest.approx(theirs.item(), abs=1e-5)


def test_calibration_of_the_route_is_that_of_torchmetrics_for_four_classes() -> None:
    rng = np.random.default_rng(3)
    probabilities, gold = rng.dirichlet(np.ones(4), 400), rng.integers(0, 4, 400)
    theirs = MulticlassCalibrationError(4, n_bins=15, norm="l1")(torch.tensor(probabilities), torch.tensor(gold))
    right = probabilities.argmax(axis=1) == gold
    assert calibration_error(list(probabilities.max(axis=1)), list(right)) == pytest.approx(theirs.item(), abs=1e-5)


def test_calibration_worked_by_hand() -> None:
    # Guo et al. 2017, equation 3, two bins: (0, .5] holds .4 wrong and .5 right, (.5, 1] holds .9 right and 1 right.
    found = bin_by_confidence([0.4, 0.5, 0.9, 1.0], [False, True, True, True], bins=2)
    assert [(b["n"], b["confidence"], b["accuracy"]) for b in found] == [(2, 0.45, 0.5), (2, 0.95, 1.0)]
    assert calibration_error([0.4, 0.5, 0.9, 1.0], [False, True, True, True], 2) == pytest.approx(0.05)


ROUTES = ["straightforward", "single", "compound", "complex"]


@given(st.lists(st.tuples(st.sampled_from(ROUTES), st.sampled_from(ROUTES)), min_size=1, max_size=80))
def test_the_confusion_matrix_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    gold, predicted = zip(*pairs, strict=True)
    theirs = confusion_matrix(gold, predicted, labels=ROUTES)
    ours = count_confusion(pairs)
    assert [[ours.get(g, {}).get(p, 0) for p in ROUTES] for g in ROUTES] == theirs.tolist()


def graphs(most: int) -> st.SearchStrategy[tuple[int, frozenset[tuple[int, int]]]]:
    def edges(n: int) -> st.SearchStrategy[tuple[int, frozenset[tuple[int, int]]]]:
        pairs = [(a, b) for b in range(n) for a in range(b)]
        chosen = st.sets(st.sampled_from(pairs), max_size=6) if pairs else st.just(set())
        return st.tuples(st.just(n), chosen.map(frozenset))

    return st.integers(0, most).flatmap(edges)


@settings(max_examples=60)
@given(graphs(5), graphs(5))
def test_graph_edit_distance_is_that_of_networkx(
    ours: tuple[int, frozenset[tuple[int, int]]], theirs: tuple[int, frozenset[tuple[int, int]]]
) -> None:
    drawn = []
    for count, edges in (ours, theirs):
        graph = networkx.DiGraph()
        graph.add_nodes_from(range(count))
        graph.add_edges_from(edges)
        drawn.append(graph)
    assert graph_distance(*ours, *theirs) == networkx.graph_edit_distance(*drawn)


@pytest.mark.parametrize(
    ("plan", "gold", "edits"),
    [
        ("Who wrote X? * When was {writer} born?", "Who made Y? * Where did {maker} die?", 0),
        ("Who wrote X? + Who wrote Y?", "Who wrote X? * Where was {writer} born?", 1),  # one edge is missing
        ("Who wrote X?", "Who wrote X? * Where was {writer} born? * When was {place} founded?", 4),  # 2 leaves, 2 edges
        ("A one * b {x} + C two * d {y}", "C two * d {y} + A one * b {x}", 0),  # the order of + is no edit
    ],
)
def test_edits_of_plans_worked_by_hand(plan: str, gold: str, edits: int) -> None:
    assert edit_distance(read_sketch(plan), read_sketch(gold)) == edits


def test_a_plan_that_is_none_or_cannot_be_bound_is_all_of_gold_away() -> None:
    gold = read_sketch("Who wrote X? * When was {writer} born?")
    assert edit_distance(None, gold) == 3 == edit_distance(read_sketch("Who is {nobody}?"), gold)


def test_entity_coverage_worked_by_hand() -> None:
    plan = read_sketch("Who directed UHF (film)? * Where was {director} born?")
    assert entity_coverage(plan, ["UHF (film)", "Tin Comet"]) == 0.5
    assert entity_coverage(plan, []) == 1.0


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
