"""What vLLM's default backend holds plans to: whatever the weights, a text that ends is one that can be run."""

from __future__ import annotations

import json

import pytest

from data_gen.world.generate import generate
from revelator.plans.decoding import make_json_grammar
from revelator.plans.language import LANGUAGES
from revelator.tasks import TASKS
from tests.revelator.plans.queries import BEYOND_GRAMMAR
from tests.revelator.plans.vllm_automaton import accepts, draw_text

QUESTIONS = 1_000
CHARACTERS = {"bnf": '+*(){}"\\ ', "logic": '"()_\\ANDOR ', "art": '"[]{}123\\: '}
RUNS_AND_RANKS_NOTHING = {"contradiction", "tautology"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("world") / "w"
    generate(QUESTIONS, 5, folder)
    return [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", LANGUAGES)
def test_random_weights_write_what_parses_and_checks_for_a_thousand_questions(name: str) -> None:
    language, written = LANGUAGES[name], 0
    for seed in range(QUESTIONS):
        text = draw_text(language.grammar().ebnf, CHARACTERS[name], 2.0 * (1 + seed % 3), 160, seed)
        if text is not None:
            written += 1
            found = {fault.code for fault in language.check(language.parse(text))}
            assert found <= RUNS_AND_RANKS_NOTHING | BEYOND_GRAMMAR, text
    assert written > QUESTIONS / 2


def test_the_plans_and_trees_of_a_thousand_questions_of_the_world_can_be_written(world: list[dict[str, str]]) -> None:
    for row in world:
        for name, text in (("bnf", row["expression"]), ("logic", row["query"]), ("art", row["tree"])):
            if text:
                language = LANGUAGES[name]
                assert accepts(language.grammar().ebnf, language.spell(language.parse(text))), text


@pytest.mark.parametrize(("text", "is_one"), [('["a", "b \\" c"]', True), ("[]", False), ('[" "]', False)])
def test_a_list_of_parts_is_held_to_its_schema(text: str, is_one: bool) -> None:
    schema = TASKS["decompose"].json_schema
    assert schema and accepts(make_json_grammar(schema()).ebnf, text) is is_one
