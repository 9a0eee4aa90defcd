"""Metrics: what each rule counts, worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.metrics.plans import PLAN_SCORES, score_plan
from evaluation.metrics.retrieval import normalise_title, score_titles
from revelator.plans import parse
from revelator.scores import ANSWER_RULES, AnswerScore, normalise, roc_auc, score_answer, score_list_answer

TEXTS = st.text(max_size=30)
RULES = st.sampled_from(sorted(ANSWER_RULES))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Marbury-Hotel!", "marburyhotel"),
        ("An apple, a pear and the plum", "apple pear and plum"),
        ("a.m.", "am"),
        ("theatre", "theatre"),
        ("  ", ""),
    ],
)
def test_normalising_lowers_and_drops_punctuation_articles_and_extra_space(text: str, normal: str) -> None:
    assert normalise(text) == normal


@given(TEXTS)
def test_normalising_ascii_text_twice_changes_nothing_but_articles_it_uncovered(text: str) -> None:
    once = normalise(text)
    assert set(normalise(once).split()) <= set(once.split())


@given(RULES, TEXTS)
def test_an_answer_equal_to_gold_is_exact_under_every_rule(rule: str, text: str) -> None:
    score = score_answer(text, [text], rule)
    assert score.em == 1.0
    if normalise(text):
        assert score == AnswerScore(1.0, 1.0, 1.0)


@given(RULES, TEXTS, TEXTS)
def test_scores_lie_between_0_and_1_and_exact_answers_have_full_f1(rule: str, prediction: str, gold: str) -> None:
    score = score_answer(prediction, [gold], rule)
    assert all(0.0 <= value <= 1.0 for value in (score.em, score.acc, score.f1))
    if score.em and normalise(gold):
        assert score.f1 == score.acc == 1.0


@given(TEXTS, TEXTS)
def test_f1_does_not_depend_on_which_text_is_gold(left: str, right: str) -> None:
    for rule in ANSWER_RULES:
        assert score_answer(left, [right], rule).f1 == score_answer(right, [left], rule).f1


def test_the_best_alias_counts_for_each_score_on_its_own() -> None:
    assert score_answer("New York City", ["NYC", "New York"]) == AnswerScore(0.0, 1.0, 0.8)


def test_a_sentence_that_contains_the_answer_has_acc_but_no_em() -> None:
    score = score_answer("It was founded in 1912 by Ana Sorel.", ["Ana Sorel"])
    assert (score.em, score.acc) == (0.0, 1.0)
    assert score.f1 == pytest.approx(2 * 2 / (8 + 2))


def test_no_gold_scores_nothing() -> None:
    assert score_answer("anything", []) == AnswerScore(0.0, 0.0, 0.0)


def test_only_hotpotqa_refuses_credit_for_words_shared_with_yes_or_no() -> None:
    assert score_answer("no way", ["no"], "squad").f1 == pytest.approx(2 / 3)
    assert score_answer("no way", ["no"], "hotpotqa").f1 == 0.0
    assert score_answer("yes", ["yes indeed"], "hotpotqa").f1 == 0.0
    assert score_answer("noanswer", ["noanswer"], "hotpotqa").f1 == 1.0


def test_only_musique_counts_two_texts_without_words_as_equal() -> None:
    assert score_answer("the", ["!"], "musique").f1 == 1.0
    assert score_answer("the", ["!"], "squad").f1 == 0.0
    assert score_answer("", ["Lima"], "musique").f1 == 0.0


def test_a_list_answer_wants_every_value_whatever_the_order() -> None:
    gold = ["Lima", "Oslo", "Rome"]
    assert score_list_answer(["Rome", "Lima", "oslo"], gold) == AnswerScore(1.0, 1.0, 1.0)
    assert score_list_answer(["Lima", "Oslo"], gold) == AnswerScore(0.0, 2 / 3, 0.8)
    assert score_list_answer(["Lima and Oslo"], gold) == AnswerScore(0.0, 2 / 3, 0.0)
    assert score_list_answer(["Lima"], []) == AnswerScore(0.0, 0.0, 0.0)


GOLD_PLAN = parse(
    "(Who directed Arno? * Where was {director} born? + Who wrote Belt?) * Did {place} ever host {writer}?"
)
NAMES = ["Arno", "Belt"]


@pytest.mark.parametrize(
    ("output", "score"),
    [
        (
            "(Who directed Arno? * Where was {director} born? + Who wrote Belt?) * Did {place} ever host {writer}?",
            (True, True, True, True, True, True, True),
        ),
        (
            "(Who wrote Belt? + Who made Arno? * Where was {maker} born?) * Did {place} ever host {writer}?",
            (True, True, True, True, False, True, True),
        ),
        (
            "Who directed Arno? * Where was {director} born? * Who wrote of {place}? * Did {writer} visit {place}?",
            (True, False, True, True, False, False, False),
        ),
        ("Who directed Arno? * Where was {director} born?", (True, False, True, False, False, False, False)),
        ("Where was {director} born?", (False, False, True, False, False, False, False)),
        ("Who directed Arno? *", (False,) * 7),
        ("", (False,) * 7),
    ],
)
def test_a_plan_is_held_against_gold_by_shape_leaves_and_words(output: str, score: tuple[bool, ...]) -> None:
    assert score_plan(output, GOLD_PLAN, "", NAMES) == dict(zip(PLAN_SCORES, score, strict=True))


def test_operations_are_held_against_gold_apart_from_what_they_work_on() -> None:
    gold = parse("(Who directed Arno? * When was {1} born?) + (Who wrote Belt? * When was {3} born?) => argmin")
    for plan, expected in {
        "(Who made Arno? + Who wrote Belt?) * When was {1} born? => argmin": (True, False),
        "(Who directed Arno? * When was {1} born?) + (Who wrote Belt? * When was {3} born?) => argmax": (False, False),
        "(Who made Arno? * When was {1} born?) + (Who penned Belt? * When was {3} born?) => argmin": (True, True),
        "(Who made Arno? * When was {1} born?) + (Who penned Belt? * When was {3} born?)": (False, False),
    }.items():
        scores = score_plan(plan, gold, "", NAMES)
        assert (scores["operations"], scores["letters"]) == expected, plan


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Titanic (1997 film)", "Titanic ( 1997 film )"),
        ("Mary_Poppins", "mary  poppins"),
        ("O'Brien, Ltd.", "O ' Brien , Ltd ."),
        ("ＡＢＣ", "abc"),
    ],
)
def test_titles_that_differ_only_in_writing_are_one_title(left: str, right: str) -> None:
    assert normalise_title(left) == normalise_title(right)


def test_titles_of_different_words_stay_apart() -> None:
    assert normalise_title("Titanic (1997 film)") != normalise_title("Titanic (1953 film)")


def test_recall_counts_distinct_gold_titles() -> None:
    found = score_titles(["Arno", "belt", "Belt", "Dune"], ["Belt", "Dune", "belt", "Fern"], (1, 2, 3))
    assert [found[f"recall@{k}"] for k in (1, 2, 3)] == pytest.approx([0, 1 / 3, 2 / 3])


def test_the_area_under_the_curve_of_one_class_is_nan() -> None:
    assert math.isnan(roc_auc([0.1, 0.9], [True, True]))


def test_auc_of_ties_is_one_half() -> None:
    assert roc_auc([0.3, 0.3, 0.3], [True, False, False]) == 0.5
    assert roc_auc([0.9, 0.1, 0.5, 0.5], [True, False, True, False]) == pytest.approx(3.5 / 4)
