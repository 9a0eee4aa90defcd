"""Several answers are a tuple, and a list on the disk: no text is split, so an answer may hold a semicolon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_gen.config import SetConfig
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, DroppedError, write_questions
from data_gen.records import make_records, make_sub_questions
from data_gen.sources.multi_hop import read_musique
from data_gen.sources.rows import read_world
from data_gen.teacher.replies import read_answers as read_reply
from revelator.rows import Row
from training.rewards import execute, parse, read_answers

TITLE = "Wit; or, the Fool"
ROW = {
    "id": "2hop__1_2",
    "question": "Who wrote the play that Harrow House staged?",
    "question_decomposition": [
        {"id": 1, "question": "Which play did Harrow House stage?", "answer": TITLE},
        {"id": 2, "question": "Who wrote #1?", "answer": "Ada Quill; Jr."},
    ],
    "answer": "Ada Quill; Jr.",
}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """The row as annotated, in a file of annotated questions."""
    (tmp_path / "musique.jsonl").write_text(json.dumps(ROW))
    [question] = read_musique(tmp_path / "musique.jsonl")
    assert isinstance(question, AnnotatedQuestion)
    with write_questions(tmp_path / "questions.jsonl") as write:
        write(question)
    return tmp_path / "questions.jsonl"


def records(question: AnnotatedQuestion) -> dict[str, Row]:
    config = SetConfig.model_validate({"name": "t", "sources": [{"format": "world", "path": "w"}]})
    return {row.id.removeprefix(f"{question.id}/"): row for row in make_records(question, config, question.id)}


def test_an_answer_with_a_semicolon_is_one_answer_from_the_annotation_to_the_reward(questions: Path) -> None:
    [question] = read_world(questions)
    assert isinstance(question, AnnotatedQuestion)
    assert [step.answers for step in question.steps] == [(TITLE,), ("Ada Quill; Jr.",)]
    singles = make_sub_questions(question, 2, 0)
    assert {single.answers for single in singles} == {(TITLE,), ("Ada Quill; Jr.",)}
    made = records(question)
    assert f"Which play did Harrow House stage? = {TITLE}\n" in made["refine/1"].prompt
    plan = parse(json.loads(made["translate_bnf/0"].gold))
    assert execute(plan, read_answers(questions)) == (("Ada Quill; Jr.",),)


@pytest.mark.parametrize("refused", [TITLE, "[]", "[1]", '["Another play"]', '{"answer": "x"}'])
def test_a_teacher_answers_with_a_list_of_texts_that_stand_in_a_document(refused: str) -> None:
    documents = [AnnotatedPassage("Harrow House", f"In 1931 it staged {TITLE}.", True)]
    assert read_reply(documents, json.dumps([TITLE, "Harrow House"])) == (TITLE, "Harrow House")
    with pytest.raises(DroppedError):
        read_reply(documents, refused)
