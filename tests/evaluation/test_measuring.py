"""Gold titles of a question, and the rule that its answers are scored by."""

from __future__ import annotations

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from evaluation.demo import score_answer
from evaluation.harness.question_scores import find_gold_titles

PLAN = "Who wrote Belt? * Where was {writer} born?"


def question(source: str = "musique", answers: tuple[str, ...] = ("Lima",)) -> AnnotatedQuestion:
    steps = (
        AnnotatedStep("Who wrote Belt?", ("Ana Sorel",), "Belt (novel)"),
        AnnotatedStep("Where was Ana Sorel born?", ("Lima",)),
    )
    seen = (
        AnnotatedPassage("Belt (novel)", "Belt is a novel by Ana Sorel.", True),
        AnnotatedPassage("Cove", "Cove is a town.", False),
    )
    about = (f"{source}:1", source, "CC0-1.0", "dev", "Where was the writer of Belt born?", "complex", PLAN)
    return AnnotatedQuestion(*about, steps=steps, answers=answers, passages=seen)


def test_gold_titles_are_those_of_the_steps_or_else_of_the_relevant_passages() -> None:
    assert find_gold_titles(question()) == ("Belt (novel)",)
    untitled = AnnotatedQuestion.from_json(question().to_json() | {"steps": []})
    assert find_gold_titles(untitled) == ("Belt (novel)",)


def test_answers_are_scored_by_the_rule_of_their_set() -> None:
    assert score_answer(question("2wiki", ("no",)), ["no one"]).f1 == 0.0
    assert score_answer(question("musique", ("Lima", "City of Kings")), ["the City of Kings"]).em == 1.0
    assert score_answer(question("world", ("Lima", "Oslo")), ["Oslo", "Lima"]).em == 1.0
    assert score_answer(question("musique", ("Lima", "Oslo")), ["Oslo", "Lima"]).em == 0.0
