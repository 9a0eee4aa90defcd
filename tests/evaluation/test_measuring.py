"""Gold titles of a question, the rule that its answers are scored by, and what a floor would refuse."""

from __future__ import annotations

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from evaluation.harness.folder import QuestionRow
from evaluation.harness.formats import FORMATS
from evaluation.harness.question_scores import find_gold_titles, score_answers
from evaluation.harness.run_metrics import measure_coverage
from revelator.trace import join_answers

PLAN = "Who wrote Belt? * Where was {writer} born?"


def question() -> AnnotatedQuestion:
    steps = (
        AnnotatedStep("Who wrote Belt?", ("Ana Sorel",), "Belt (novel)"),
        AnnotatedStep("Where was Ana Sorel born?", ("Lima",)),
    )
    seen = (
        AnnotatedPassage("Belt (novel)", "Belt is a novel by Ana Sorel.", True),
        AnnotatedPassage("Cove", "Cove is a town.", False),
    )
    about = ("musique:1", "musique", "CC0-1.0", "dev", "Where was the writer of Belt born?", "complex", PLAN)
    return AnnotatedQuestion(*about, steps=steps, answers=("Lima",), passages=seen)


def test_gold_titles_are_those_of_the_steps_or_else_of_the_relevant_passages() -> None:
    assert find_gold_titles(question()) == ("Belt (novel)",)
    untitled = AnnotatedQuestion.from_json(question().to_json() | {"steps": []})
    assert find_gold_titles(untitled) == ("Belt (novel)",)


def score(name: str, golds: tuple[str, ...], said: list[str]) -> dict[str, float]:
    how = FORMATS[name]
    return score_answers(join_answers(said), said, golds, how.normaliser, is_list=how.has_list_answers)


def test_answers_are_scored_by_the_rule_of_their_set() -> None:
    assert score("2wiki", ("no",), ["no one"])["f1"] == 0.0
    assert score("musique", ("Lima", "City of Kings"), ["the City of Kings"])["em"] == 1.0
    assert score("world", ("Lima", "Oslo"), ["Oslo", "Lima"])["em"] == 1.0
    assert score("musique", ("Lima", "Oslo"), ["Oslo", "Lima"])["em"] == 0.0


def test_a_higher_floor_keeps_fewer_answers_and_more_of_them_are_right() -> None:
    def row(number: int, em: float, probability: float | None, predictions: tuple[str, ...] = ("x",)) -> QuestionRow:
        scores = {"em": em}
        return QuestionRow(f"{number}", "b", "q", ("x",), "x", predictions, scores=scores, probability=probability)

    rows = [row(1, 1, 0.95), row(2, 1, 0.4), row(3, 0, 0.03), row(4, 0, 0.9, predictions=())]
    curve = {one["floor"]: (one["coverage"], one["accuracy"]) for one in measure_coverage(rows, "answer_floor")}
    assert curve[0.0] == (0.75, 2 / 3) and curve[0.05] == (0.5, 1.0) and curve[0.5] == (0.25, 1.0)
    assert measure_coverage(rows, "relevance_floor") == []  # nothing was judged
    rows.append(row(5, 1, None))
    assert measure_coverage(rows, "answer_floor")[-1]["coverage"] == 0.4  # no floor refuses what has no probability
