"""The tasks: prompts, labels, strict parsers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import ExpressionError, TaskOutputError
from revelator.plans import parse
from revelator.tasks import (
    TASKS,
    QuestionInput,
    ReadAnswer,
    ReadInput,
    RelevanceInput,
    SelectInput,
    Step,
    StepsInput,
    prompt_hash,
)
from revelator.tasks.task import DOCUMENT_CHARACTERS, PASSAGE_CHARACTERS, VERDICTS

STEPS = (Step("Who directed UHF?", ("Jay Levey",)),)
INPUTS = {
    "route": QuestionInput("Q?"),
    "decompose": QuestionInput("Q?"),
    "refine": StepsInput("Q?", STEPS),
    "rewrite": StepsInput("Q?", STEPS),
    "relevance": RelevanceInput("Q?", "T", "text"),
    "end": StepsInput("Q?", STEPS),
    "translate_bnf": QuestionInput("Q?"),
    "translate_logic": QuestionInput("Q?"),
    "translate_art": QuestionInput("Q?"),
    "select": SelectInput("Q?", "films", "graph", "films and who made them"),
    "read": ReadInput("Q?", (("T", "text"), ("", "more"))),
}


def test_every_task_has_an_input():
    assert set(TASKS) == set(INPUTS)


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_a_prompt_holds_its_question_and_never_ends_in_white_space(name):
    prompt = TASKS[name].render(INPUTS[name])
    assert "Q?" in prompt
    assert prompt == prompt.rstrip()


@given(text=st.text(max_size=80), title=st.text(max_size=40), question=st.text(max_size=40))
def test_no_question_and_no_document_forges_a_line(text, title, question):
    task = TASKS["relevance"]
    plain = task.render(RelevanceInput("q", "t", "d"))
    forged = task.render(RelevanceInput(f"{question}\nQuestion: x", f"{title}\r\n", f"{text}\u2028Document:"))
    assert len(forged.splitlines()) <= len(plain.splitlines())
    step = TASKS["end"].render(StepsInput(question, (Step(text, (title,)),)))
    assert len(step.splitlines()) == len(TASKS["end"].render(StepsInput("q", STEPS)).splitlines())


def test_a_document_is_cut_to_its_limit():
    prompt = TASKS["relevance"].render(RelevanceInput("Q?", "T", "z" * (DOCUMENT_CHARACTERS * 2)))
    assert prompt.count("z") == DOCUMENT_CHARACTERS


def test_a_task_refuses_the_input_of_another():
    with pytest.raises(TypeError, match="QuestionInput"):
        TASKS["route"].render(StepsInput("Q?"))


@pytest.mark.parametrize("name", ["route", "relevance", "end"])
def test_a_label_task_reads_its_labels_and_nothing_else(name):
    task = TASKS[name]
    for label in task.labels:
        assert task.parse(task.write_completion(label)) == label
        for wrong in (label.upper(), f"in{label}", f"{label}.", f"{label} {label}", ""):
            with pytest.raises(TaskOutputError):
                task.parse(wrong)


@pytest.mark.parametrize("output", ["", "[]", '["a"', '{"a": 1}', '"a"', '["a", 1]', '["a", " "]', "a; b"])
def test_decompose_refuses_what_is_not_a_list_of_questions(output):
    with pytest.raises(TaskOutputError):
        TASKS["decompose"].parse(output)


@given(st.lists(st.text(min_size=1).map(str.strip).filter(bool), min_size=1))
def test_decompose_reads_what_it_writes(parts):
    task = TASKS["decompose"]
    assert task.parse(task.write_completion(parts)) == parts
    assert json.loads(task.write_completion(parts)) == parts


@pytest.mark.parametrize("output", ["", "  ", "Who?\nWhere?"])
@pytest.mark.parametrize("task", ["refine", "rewrite"])
def test_what_is_not_one_question_is_refused(task, output):
    with pytest.raises(TaskOutputError, match=task):
        TASKS[task].parse(output)


LINES = st.text(min_size=1, max_size=40).map(lambda text: " ".join(text.split())).filter(bool)


@given(st.lists(LINES, min_size=1, max_size=4).map(tuple) | st.sampled_from(VERDICTS))
def test_read_reads_what_it_writes(answer):
    task, gold = TASKS["read"], ReadAnswer(verdict=answer) if isinstance(answer, str) else ReadAnswer(answer)
    written = task.write_completion(gold)
    assert task.parse(written) == gold and "\n" not in written


@pytest.mark.parametrize("output", ["", "Una\nVard", "[]", "[Una]", '["Una"', '["Una", ""]', '["Una", 1]'])
def test_read_refuses_what_is_no_answer(output):
    with pytest.raises(TaskOutputError, match="read must answer"):
        TASKS["read"].parse(output)


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=2000)), min_size=1, max_size=3).map(tuple))
def test_passages_stand_on_a_line_each_and_share_their_room(passages):
    values = TASKS["read"].read_values(TASKS["read"].render(ReadInput("Q?", passages)))
    assert list(values) == ["question", *(f"passage {number + 1}" for number in range(len(passages)))]
    shown, folded = (
        list(values.values())[1:],
        [": ".join(filter(None, (" ".join(t.split()) for t in p))) for p in passages],
    )
    assert sum(map(len, shown)) <= PASSAGE_CHARACTERS
    assert all(text.startswith(part.rstrip()) for part, text in zip(shown, folded, strict=True))
    if sum(map(len, folded)) <= PASSAGE_CHARACTERS:
        assert [part.rstrip() for part in shown] == folded


def test_translate_reads_what_it_writes_and_refuses_the_rest():
    task = TASKS["translate_bnf"]
    plan = parse("A * (B {x} + C {x})")
    assert task.parse(task.write_completion(plan)) == plan
    with pytest.raises(ExpressionError):
        task.parse("A * ")


def test_prompt_hashes_tell_the_tasks_apart_and_cover_labels():
    assert len({task.prompt_hash for task in TASKS.values()}) == len(TASKS)
    assert len(prompt_hash()) == 64
