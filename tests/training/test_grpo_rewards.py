"""What rollouts earn: gold earns all that fits its task, faults cost what they break, the executed answer decides."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import DataError
from revelator.plans import parse
from training.rewards import REWARDS, TASK, execute, make_reward_functions, read_answers

STEPS = {
    "Who is the mayor of Port Velm?": ["Ama Oyelaran"],
    "Who leads Port Velm?": ["Ama Oyelaran"],
    "Where was Ama Oyelaran born?": ["Kaldur"],
    "Which towns lie near Kaldur?": ["Sarnath", "Obra Vale"],
    "Who is the mayor of Sarnath?": ["Ivo Marek"],
    "Who is the mayor of Obra Vale?": ["Mei Watanabe"],
    "When was Sarnath founded?": ["1702"],
    "How many of Sarnath; Obra Vale are ports?": ["1"],
}
ANSWERS = {question.casefold(): tuple(answers) for question, answers in STEPS.items()}
PROMPT = "Question: Where was the mayor of Port Velm born?\nPlan:"
GOLD = "Who is the mayor of Port Velm? * Where was {mayor} born?"


def earned(output: str, gold: str = GOLD, answers=ANSWERS) -> dict[str, float | None]:
    prompt = TASK.template.replace("$question", "Where was the mayor of Port Velm born?")
    functions = make_reward_functions(dict.fromkeys(REWARDS, 1.0), answers)
    return {f.__name__: f([prompt], [output], gold=[json.dumps(gold)])[0] for f in functions}


def test_gold_earns_every_reward() -> None:
    assert earned(f" {GOLD}") == dict.fromkeys(REWARDS, 1.0)


@pytest.mark.parametrize(
    ("output", "costs"),
    [
        ("Who is the mayor of Port Velm? * Where was {mayor} born", {"executed", "exact"}),
        ("Who is the mayor of Port? * Where was {mayor} born?", {"entities", "executed", "exact"}),
        ("Who is the mayor of Port Velm? + Where was Ama Oyelaran born?", {"binding", "executed", "exact"}),
        ("Who leads Port Velm? * Who knows {x}? * Where was {y} born?", {"binding", "leaves", "executed", "exact"}),
        ("Where was {mayor} born?", {"valid", "binding", "entities", "leaves", "executed", "exact"}),
        ("Who is the mayor of Port Velm? * (", {"valid", "binding", "entities", "leaves", "executed", "exact"}),
        ("", {"valid", "binding", "entities", "leaves", "executed", "exact"}),
    ],
)
def test_each_fault_of_a_plan_costs_the_rewards_that_it_breaks(output: str, costs: set[str]) -> None:
    values = earned(output)
    assert {name for name, value in values.items() if value is not None and value < 1} == costs


def test_other_words_that_lead_to_the_same_answer_earn_the_executed_reward_and_not_that_for_golds_own() -> None:
    values = earned("Who leads Port Velm? * Where was {leader} born?")
    assert (values["executed"], values["exact"]) == (1.0, 0.0)


def test_a_plan_whose_gold_no_table_answers_has_no_executed_reward() -> None:
    assert earned(GOLD, answers={})["executed"] is None


@given(st.text(max_size=60))
def test_whatever_is_written_every_reward_lies_between_0_and_1(output: str) -> None:
    assert all(value is None or 0 <= value <= 1 for value in earned(output).values())


def test_a_plan_is_executed_over_every_value_of_an_answer_unless_all_were_asked_for_together() -> None:
    towns = "Who is the mayor of Port Velm? * Where was {mayor} born? * Which towns lie near {city}?"
    each = parse(f"{towns} * Who is the mayor of {{town}}?")
    assert execute(each, ANSWERS) == (("Ivo Marek", "Mei Watanabe"),)
    together = parse(f"{towns} * How many of {{towns}} are ports?")
    assert execute(together, ANSWERS) == (("1",),)
    assert execute(parse(f"{towns} * When was {{town}} founded?"), ANSWERS) is None


def test_branches_count_in_any_order() -> None:
    one, other = "Who leads Port Velm?", "When was Sarnath founded?"
    assert execute(parse(f"{one} + {other}"), ANSWERS) == execute(parse(f"{other} + {one}"), ANSWERS)


def test_a_world_is_read_as_a_folder_or_a_file_and_a_broken_line_is_named(tmp_path: Path) -> None:
    steps = [{"question": question, "answers": answers, "title": ""} for question, answers in STEPS.items()]
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "1", "steps": steps}) + "\n")
    assert read_answers(tmp_path) == read_answers(tmp_path / "questions.jsonl") == ANSWERS
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write('{"id": "2"}\n')
    with pytest.raises(DataError, match=r"questions\.jsonl, line 2: no annotated question"):
        read_answers(tmp_path)
    with pytest.raises(DataError, match="the answers cannot be read"):
        read_answers(tmp_path / "nowhere")
