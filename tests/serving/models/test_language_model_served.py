"""A real language model behind llama.cpp's server plans, judges and reads: what it says comes back in the form that was
asked for, also where the connection or the server fails on the way."""

from __future__ import annotations

import httpx
import pytest

from revelator.errors import DeadlineExceeded
from revelator.tasks import TASKS, QuestionInput, Step
from revelator.trace import Node, Passage
from serving.executor.judges import JudgeConfig, ListwiseJudge
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.generators import EndpointGenerator
from serving.protocols import GenerateRequest
from tests.chat_server import Handler, Reply, cuts, cuts_inside, fails, running, says
from tests.served_llm import MODEL

pytestmark = pytest.mark.llm
PASSAGES = (
    Passage("bridge", "Heron Bridge", "The Heron Bridge crosses the Orle. It was built by Ada Merrow in 1911."),
    Passage("mill", "Brack Mill", "Brack Mill is a water mill in Norland."),
)


def generator(url: str, **options: float) -> EndpointGenerator:
    return EndpointGenerator(url, MODEL, timeout=options.get("timeout", 300.0), retries=0)


async def test_an_answer_comes_with_the_sentence_and_the_passage_that_say_it(llm_url: str) -> None:
    reading = await generator(llm_url).answer(GenerateRequest("read", "Who built the Heron Bridge?", PASSAGES))
    assert reading.answers == ("Ada Merrow",)
    assert reading.method == "endpoint"
    assert reading.sentence in ("", "It was built by Ada Merrow in 1911.", "The Heron Bridge crosses the Orle.")
    assert reading.document in ("", "bridge")
    assert reading.probability is not None and 0 < reading.probability <= 1
    assert reading.tokens_in > 0 and 0 < reading.tokens_out < 60


@pytest.mark.parametrize(
    "question",
    ["Is Brack Mill in Norland?", "Who sold the Heron Bridge?", "Which buildings are named?", "?", "{}", "Say </data>"],
)
async def test_every_question_comes_back_in_the_form_that_was_asked_for(llm_url: str, question: str) -> None:
    reading = await generator(llm_url).answer(GenerateRequest("read", question, PASSAGES))
    assert reading.method == "endpoint"
    assert bool(reading.answers) != bool(reading.reason)
    assert not any("{" in answer for answer in reading.answers)


@pytest.mark.parametrize("mode", ["direct", "merge", "rewrite"])
async def test_the_other_modes_come_back_in_their_form_too(llm_url: str, mode: str) -> None:
    steps = (Step("When was Ada Merrow born?", ("1874",)), Step("When was Jon Abel born?", ("1901",)))
    asked = GenerateRequest(mode, "Who was born first, Ada Merrow or Jon Abel?", steps=steps)  # type: ignore[arg-type]
    reading = await generator(llm_url).answer(asked)
    assert reading.method == "endpoint"
    assert (reading.sentence, reading.document) == ("", "")


async def test_a_deadline_ends_a_reading_and_the_next_one_is_answered(llm_url: str) -> None:
    with pytest.raises(DeadlineExceeded):
        await generator(llm_url, timeout=0.01).answer(GenerateRequest("read", "Who built it?", PASSAGES))
    assert (await generator(llm_url).answer(GenerateRequest("read", "Who built it?", PASSAGES))).method == "endpoint"


async def test_a_text_is_written_as_it_is(llm_url: str) -> None:
    reading = await generator(llm_url).answer(GenerateRequest("write", "Say one word.", logprobs=True))
    assert reading.sentence and reading.tokens


async def test_it_plans_in_a_form_that_the_executor_can_check(llm_url: str) -> None:
    revelator = EndpointRevelator(PlannerConfig(url=llm_url, model=MODEL), timeout=300)
    asked = QuestionInput("Where was the builder of the Heron Bridge born?")
    await revelator.check()
    [plan] = await revelator.complete("translate_bnf", [TASKS["translate_bnf"].render(asked)])
    assert plan.text and "{" not in plan.text[:1] and plan.tokens_out > 0
    [route] = await revelator.complete("route", [TASKS["route"].render(asked)])
    assert set(route.probabilities) == set(TASKS["route"].labels or ())
    assert sum(route.probabilities.values()) == pytest.approx(1)
    await revelator.close()


async def test_it_judges_all_documents_of_a_leaf_in_one_call(llm_url: str) -> None:
    judge = ListwiseJudge(JudgeConfig(url=llm_url, model=MODEL), timeout=300)
    node = Node("1", "atomic", "Who built the Heron Bridge?")
    judged = await judge.judge(node, node.question, PASSAGES)
    assert judged is not None and len(judged) == len(PASSAGES) and set(judged) <= {0.0, 1.0}
    assert node.usage.model_calls == 1
    await judge.close()


@pytest.mark.parametrize("fault", [fails(500), fails(503), cuts, cuts_inside, says("no JSON"), says('{"kind": "val')])
async def test_what_fails_once_on_the_way_is_asked_again(llm_url: str, fault: Reply) -> None:
    def forward(handler: Handler) -> None:
        with httpx.Client(trust_env=False, timeout=300) as client:
            handler.send(200, client.post(f"{llm_url}/chat/completions", json=handler.body).content)

    with running() as between:
        between.replies = [fault, forward]
        asked = EndpointGenerator(between.url, MODEL, timeout=300, retries=1)
        reading = await asked.answer(GenerateRequest("read", "Who built the Heron Bridge?", PASSAGES))
    assert reading.method == "endpoint" and bool(reading.answers) != bool(reading.reason)
    assert len(between.requests) == 2


def test_the_server_lists_its_model(llm_url: str) -> None:
    assert httpx.get(f"{llm_url}/models", trust_env=False).json()["data"]
