"""What rollouts earn: gold earns all that fits its task, faults cost what they break, the executed answer decides."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import DataError
from revelator.plans import parse
from revelator.rows import Row
from revelator.tasks import TASKS
from tests.training.toy import toy_rows
from training.rewards import REWARDS, Execution, execute, is_hard, make_reward_functions, read_answers

FITTING = {
    "translate_bnf": {"valid", "binding", "entities", "leaves", "executed", "exact"},
    "decompose": {"valid", "entities", "leaves"},
    "refine": {"valid", "entities"},
    "translate_logic": {"valid", "entities"},
    "translate_art": {"valid", "entities"},
    "route": {"valid", "label"},
    "relevance": {"valid", "label"},
    "end": {"valid", "label"},
    "select": {"valid", "label"},
}
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


def earned(output: str, task: str = "translate_bnf", gold: str = GOLD, answers=ANSWERS) -> dict[str, float | None]:
    prompt = TASKS["translate_bnf"].template.replace("$question", "Where was the mayor of Port Velm born?")
    functions = make_reward_functions(dict.fromkeys(REWARDS, 1.0), answers)
    return {f.__name__: f([prompt], [output], task=[task], gold=[json.dumps(gold)])[0] for f in functions}


@given(st.sampled_from(toy_rows("train", 8)))
def test_gold_earns_all_of_what_fits_its_task_and_the_rest_is_none(row: Row) -> None:
    answers = {}
    if row.task == "translate_bnf":  # a world in which everything is answered: by the question itself
        first, second = (leaf.strip() for leaf in json.loads(row.gold).split(" * "))
        answers = {first.casefold(): ("Ada",), second.replace("{mayor}", "Ada").casefold(): ("there",)}
    functions = make_reward_functions(dict.fromkeys(REWARDS, 1.0), answers)
    values = {f.__name__: f([row.prompt], [row.completion], task=[row.task], gold=[row.gold])[0] for f in functions}
    assert values == {name: 1.0 if name in FITTING[row.task] else None for name in REWARDS}


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
    assert execute(each, ANSWERS) == Execution((("Ivo Marek", "Mei Watanabe"),), 5)
    assert is_hard(each, ANSWERS) and not is_hard(parse(GOLD), ANSWERS)
    five = " * ".join(["Who leads Orn?", *(f"Who taught {{x{n}}}?" for n in range(4))])
    assert is_hard(parse(five), {}) and not is_hard(parse(five.rpartition(" * ")[0]), {})
    assert is_hard(parse("(Who leads Orn? + Who leads Urn?) * Who taught {leader} and {leader_2}?"), {})
    together = parse(f"{towns} * How many of {{towns}} are ports?")
    assert execute(together, ANSWERS) == Execution((("1",),), 4)
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
