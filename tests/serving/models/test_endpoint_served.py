"""A planner at servers that are not ours: the embedded base, whose plans its engine writes too, at `transformers serve`
and at the real vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_gen.world.generate import QUESTIONS, generate
from revelator.artifact import list_learned_tasks
from revelator.plans import logic
from revelator.tasks import TASKS, TRANSLATE_LOGIC, QuestionInput, Task
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.vllm_server import VllmServer
from tests.causal import TINY
from tests.serving.models.test_endpoint_revelator import PROMPTS
from tests.serving.toy_model import write_adapter

LEARNED = [TASKS[name] for name in sorted(list_learned_tasks(TINY))]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TINY, threads=1)


def planner(url: str, model: str, **settings: str) -> EndpointRevelator:
    return EndpointRevelator(PlannerConfig.model_validate({"url": url, "model": model, **settings}), timeout=300)


@pytest.mark.parametrize("structure", ["auto", "vllm", "schema", "none"])
async def test_transformers_serve_is_asked_in_a_form_that_it_takes(
    transformers_url: str,
    served_base: Path,
    engine: Engine,
    structure: str,
) -> None:
    revelator = planner(transformers_url, str(served_base), structure=structure)
    await revelator.check()
    [plan] = await revelator.complete("translate_bnf", [PROMPTS["translate_bnf"]])
    [ours] = complete(engine, "translate_bnf", [PROMPTS["translate_bnf"]], decoding="grammar")
    assert plan.text == ours.text
    assert plan.tokens_in > 0 and plan.tokens_out > 0


@pytest.mark.parametrize("task", LEARNED, ids=lambda task: task.name)
async def test_transformers_serve_answers_a_training_prompt_as_the_engine_does(
    transformers_url: str, served_base: Path, engine: Engine, task: Task
) -> None:
    """It holds a text to no form, and gives no log probabilities: the label that it says has them all."""
    revelator = planner(transformers_url, str(served_base), prompt="trained")
    [theirs] = await revelator.complete(task.name, [PROMPTS[task.name]])
    [ours] = complete(engine, task.name, [PROMPTS[task.name]], decoding="free")
    assert (theirs.text, theirs.degraded) == (ours.text, False)
    assert theirs.probabilities == ({label: float(label == ours.text) for label in task.labels or ()})


@pytest.mark.vllm
@pytest.mark.parametrize("task", LEARNED, ids=lambda task: task.name)
async def test_vllm_answers_a_training_prompt_as_the_engine_does(
    vllm_url: str,
    engine: Engine,
    task: Task,
) -> None:
    revelator = planner(vllm_url, "tiny", prompt="trained")
    await revelator.check()
    [theirs] = await revelator.complete(task.name, [PROMPTS[task.name]])
    [ours] = complete(engine, task.name, [PROMPTS[task.name]], decoding="grammar")
    assert theirs.text == ours.text
    assert theirs.probabilities == pytest.approx(ours.probabilities, abs=0.01)


@pytest.mark.vllm
@pytest.mark.parametrize("structure", ["vllm", "schema"])
@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
async def test_vllm_holds_a_chat_to_the_form_of_each_task(vllm_url: str, task: Task, structure: str) -> None:
    """The base sees the question alone, so only the form of a reply is right. By a schema a question and a plan are any
    text, and a list may be empty; an answer is any line."""
    [reply] = await planner(vllm_url, "tiny", structure=structure).complete(task.name, [PROMPTS[task.name]])
    loose = {"vllm": ["read"], "schema": ["translate_logic", "translate_bnf", "refine", "rewrite", "decompose", "read"]}
    if task.name not in loose[structure]:
        is_cut_off = reply.degraded or not reply.text
        assert is_cut_off or task.parse_sound(reply.text) is not None
    if task.labels:
        assert not reply.degraded and sum(reply.probabilities.values()) == pytest.approx(1)


@pytest.mark.vllm
@pytest.mark.timeout(3600)
async def test_an_adapter_of_random_weights_writes_plans_that_parse_and_check(
    vllm_url: str, served_base: Path, tmp_path: Path
) -> None:
    """A thousand questions of the world, by turns in each plan language; one that is cut off is asked as it stands. No
    grammar can tell that a logical query matches all or no documents."""
    generate(1000, 5, tmp_path / "world")
    lines = (tmp_path / "world" / QUESTIONS).read_text().splitlines()
    asked = [json.loads(line)["question"] for line in lines]
    VllmServer(vllm_url).load(9, write_adapter(tmp_path / "random", served_base, seed=9, rank=8))
    wild, written = planner(vllm_url, "revelator-9", prompt="trained"), 0
    for number, task in enumerate(task for task in TASKS.values() if task.language):
        prompts = [task.render(QuestionInput(question)) for question in asked[number::3]]
        plans = await wild.complete(task.name, prompts)
        faulty = [plan.text for plan in plans if task.parse_sound(plan.text) is None]
        codes = {fault.code for text in faulty for fault in logic.check(logic.parse(text))}
        assert not faulty or (task is TRANSLATE_LOGIC and codes <= {"contradiction", "tautology"})
        written += sum(not plan.degraded for plan in plans)
    assert written > 0
