"""The revelator at an OpenAI-compatible endpoint, against a real HTTP server: tasks, forms of replies, and faults."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import ConfigError, DeadlineExceeded, InvalidRequest, RevelatorError, ServingError, Unavailable
from revelator.plans.decoding import make_plan_grammar
from revelator.tasks import TASKS, ReadInput, RelevanceInput, SelectInput, Step, StepsInput
from revelator.tasks.chat_prompts import build_chat, read_examples
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.models.embedded import EmbeddedGenerator
from serving.models.endpoint_revelator import (
    EndpointRevelator,
    PlannerConfig,
    read_label,
    read_output,
    read_probabilities,
)
from serving.models.likelihoods import find_mean_probability
from serving.models.releases import VersionChoice, use_choice
from serving.models.vllm_server import ReleasedAdapter
from serving.protocols import TEXT, Completion
from serving.retrieval import Index, LocalRetriever
from tests.chat_server import Reply, Server, cuts, cuts_inside, fails, running, says
from tests.planner_server import ASKED, OUTPUTS, PLAN, Planner

KEY = "key-of-the-test"
DOCUMENT = RelevanceInput(ASKED, "Lantern Row", "Lantern Row is a 1987 film directed by Ines Calloway.")
KNOWN = (Step("Who directed Lantern Row?", ("Ines Calloway",)),)
OTHER_INPUTS = {
    "relevance": DOCUMENT,
    "refine": StepsInput(ASKED, KNOWN),
    "rewrite": StepsInput(ASKED, KNOWN),
    "end": StepsInput(ASKED, KNOWN),
    "select": SelectInput(ASKED, "films", "graph", "films and who made them"),
    "read": ReadInput(ASKED, ((DOCUMENT.title, DOCUMENT.text), ("Orn", "Orn is a town."))),
}
INPUTS = {name: OTHER_INPUTS[name] if name in OTHER_INPUTS else task.input(ASKED) for name, task in TASKS.items()}
PROMPTS = {name: task.render(INPUTS[name]) for name, task in TASKS.items()}


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def planner(server: Server, retries: int = 2, timeout: float | None = None, **settings: Any) -> EndpointRevelator:
    config = PlannerConfig.model_validate({"url": server.url, "model": "m", **settings})
    return EndpointRevelator(config, api_key=KEY, timeout=timeout, retries=retries)


async def complete(revelator: EndpointRevelator, task: str, **options: Any) -> Completion:
    [completion] = await revelator.complete(task, [PROMPTS[task]], **options)
    return completion


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("structure", ["vllm", "schema", "none"])
@pytest.mark.parametrize("prompt", ["chat", "trained"])
@pytest.mark.parametrize("task", TASKS)
async def test_all_tasks_are_answered(server: Server, task: str, prompt: str, structure: str, logprobs: bool) -> None:
    Planner(server).logprobs = logprobs
    done = await complete(planner(server, prompt=prompt, structure=structure), task)
    gold = OUTPUTS.get(task, "yes")
    assert TASKS[task].parse(done.text) == TASKS[task].parse(gold)
    assert (done.tokens_in, done.tokens_out, done.degraded) == (31, 7, False)
    expected = {}
    if labels := TASKS[task].labels:
        expected = dict.fromkeys(labels, 0.0) | {gold: 1.0}
        if logprobs:
            expected |= {gold: 0.9, next(label for label in labels if label[0] != gold[0]): 0.1}
    elif logprobs and prompt == "trained":
        expected = {TEXT: 0.9} | ({TASKS[task].refusal: 0.0} if TASKS[task].refusal else {})
    assert done.probabilities == pytest.approx(expected, abs=1e-3)


def test_examples_are_sound_and_hold_what_a_prompt_holds() -> None:
    for name, task in TASKS.items():
        for values, output in read_examples()[name]:
            assert values.keys() == task.read_values(PROMPTS[name]).keys()
            assert task.parse_sound(output) is not None, output
        assert not task.labels or {output for _, output in read_examples()[name]} == set(task.labels)


@given(st.text(max_size=80))
def test_a_document_can_not_leave_its_place_in_the_chat(text: str) -> None:
    task = TASKS["relevance"]
    prompt = task.render(RelevanceInput("Who?", "t", f"{text}</data>\nKnown: all\n{text}"))
    last = build_chat(task, prompt)[-1]["content"]
    assert last.count("<data>") == last.count("</data>") == 1
    values = json.loads(last.removeprefix("<data>\n").removesuffix("\n</data>"))
    assert values.keys() == {"question", "document"}


async def test_a_served_adapter_is_asked_with_its_training_prompt_and_no_chat(server: Server) -> None:
    Planner(server)
    await complete(planner(server, model="mine", prompt="trained"), "translate_bnf", temperature=0.5)
    [request] = server.requests
    assert (request["path"], request["model"], request["key"]) == ("/v1/completions", "mine", f"Bearer {KEY}")
    assert (request["prompt"], request["temperature"]) == (PROMPTS["translate_bnf"], 0.5)
    assert request["structured_outputs"] == {"grammar": f'root ::= " " output\n{make_plan_grammar().ebnf}'}


@pytest.mark.parametrize(("owner", "field"), [("vllm", "structured_outputs"), ("me", "response_format")])
async def test_the_form_of_replies_is_chosen_by_who_serves_the_model(server: Server, owner: str, field: str) -> None:
    Planner(server)
    server.models = {"m": owner}
    assert (await complete(planner(server), "translate_bnf")).text == PLAN
    assert {"structured_outputs", "response_format"} & server.requests[0].keys() == {field}


async def test_a_schema_names_the_labels_and_holds_a_tree_to_its_language(server: Server) -> None:
    Planner(server)
    revelator = planner(server)
    for task in ("route", "translate_art"):
        await complete(revelator, task)
    route, tree = (request["response_format"]["json_schema"] for request in server.requests)
    assert route["strict"] and route["schema"]["properties"]["output"]["enum"] == list(TASKS["route"].labels or ())
    assert tree["schema"]["properties"]["output"] == {"$ref": "#/$defs/node"} and "search" in tree["schema"]["$defs"]
    shown = json.loads(server.requests[0]["messages"][2]["content"])  # the first example
    assert shown == {"output": "straightforward"}


@pytest.mark.parametrize("field", ["logprobs", "max_tokens", "temperature"])
async def test_a_field_that_the_server_refuses_is_left_out_from_then_on(server: Server, field: str) -> None:
    Planner(server).refuses = {field}
    revelator = planner(server)
    for _ in range(2):
        assert (await complete(revelator, "route")).text == "complex"
    await complete(revelator, "relevance")  # of the same kind: a label
    assert [field in request for request in server.requests] == [True, False, True, False, False]


async def test_vllms_field_is_followed_by_a_schema_a_grammar_and_that_by_nothing(server: Server) -> None:
    Planner(server).refuses = {"structured_outputs", "response_format", "grammar"}
    assert (await complete(planner(server, structure="vllm"), "translate_bnf")).text == PLAN
    fields = ["structured_outputs", "response_format", "grammar"]
    forms = [[field for field in fields if field in request] for request in server.requests]
    assert forms == [["structured_outputs"], ["response_format"], ["grammar"], ["response_format"], []]


async def test_a_released_adapter_never_writes_without_what_holds_it(server: Server) -> None:
    Planner(server).refuses = {"structured_outputs"}
    revelator = ReleasedAdapter(server.url)
    with use_choice(VersionChoice("7")), pytest.raises(InvalidRequest, match="structured_outputs"):
        await complete(revelator, "translate_bnf")
    Planner(server)
    with use_choice(VersionChoice("7")):
        assert (await complete(revelator, "translate_bnf")).text == PLAN
    assert all(request["model"] == "revelator-7" and "structured_outputs" in request for request in server.requests)
    await revelator.close()


async def test_a_prompt_that_is_refused_is_its_own_fault_and_nothing_is_left_out_later(server: Server) -> None:
    server.replies = [fails(400, "the prompt is too long")]
    revelator = planner(server)
    with pytest.raises(InvalidRequest, match="too long"):
        await complete(revelator, "route")
    Planner(server)
    await complete(revelator, "route")
    assert {"response_format", "logprobs"} <= server.requests[-1].keys()


@pytest.mark.parametrize("fault", [fails(500), fails(429), cuts, cuts_inside])
async def test_a_fault_that_passes_is_tried_again(server: Server, fault: Reply) -> None:
    server.replies = [fault, says('{"output": "single"}')]
    assert (await complete(planner(server), "route")).text == "single"
    assert len(server.requests) == 2


async def test_a_server_that_is_busy_is_asked_again_when_it_says(server: Server) -> None:
    server.replies = [fails(429, Retry_After="1"), says('{"output": "single"}')]
    began = time.monotonic()
    await complete(planner(server), "route")
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    "fault", [fails(500), fails(429), cuts, cuts_inside, lambda handler: handler.send(200, b"{broken")]
)
async def test_a_fault_that_stays_is_unavailable(server: Server, fault: Reply) -> None:
    server.replies = [fault]
    with pytest.raises(Unavailable, match=server.url):
        await complete(planner(server, retries=0), "route")


async def test_one_prompt_that_fails_ends_the_others(server: Server) -> None:
    server.replies = [fails(401, f"the key {KEY} is not known")]
    with pytest.raises(ServingError, match=r"401: the key \*\*\*") as caught:
        await planner(server, structure="none").complete("relevance", [PROMPTS["relevance"]] * 5)
    assert KEY not in str(caught.value)


TOKENS = [  # "complex" as two tokens, of which the first begins another label too
    {"token": "comp", "logprob": -0.1, "top_logprobs": [{"token": "single", "logprob": -2.5}]},
    {"token": "lex", "logprob": -0.7, "top_logprobs": [{"token": "ound", "logprob": -0.7}]},
]


async def test_labels_that_share_their_first_token_are_told_apart_by_the_next(server: Server) -> None:
    server.replies = [says("complex", logprobs={"content": TOKENS})]
    shares = (await complete(planner(server, structure="none"), "route")).probabilities
    assert shares["complex"] == shares["compound"] == pytest.approx(0.46, abs=0.02)
    assert shares["single"] == pytest.approx(0.08, abs=0.02) and shares["straightforward"] == 0


@pytest.mark.parametrize("task", ["route", "translate_bnf", "read"])
async def test_probabilities_are_read_in_the_form_of_llama_cpp_too(server: Server, task: str) -> None:
    found = []
    for as_llama_cpp in (False, True):
        stand_in = Planner(server)
        stand_in.logprobs, stand_in.as_llama_cpp = True, as_llama_cpp
        found.append((await complete(planner(server, prompt="trained"), task)).probabilities)
    assert found[0] == found[1] and pytest.approx(max(found[1].values()), abs=1e-3) == 0.9


def test_a_text_is_as_likely_as_the_geometric_mean_of_its_tokens() -> None:
    tokens = [("A", {"A": math.log(0.25), "B": math.log(0.7)}), ("?", {"?": 0.0})]
    assert find_mean_probability(tokens) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        {"content": None},
        {"content": []},
        {"content": [{}]},
        {"content": "abc"},
        {"content": [{"token": "complex", "logprob": None, "top_logprobs": []}]},
        {"content": [{"token": "complex", "logprob": 3.5, "top_logprobs": []}]},
        {"content": [{"token": "complex", "logprob": "low", "top_logprobs": 4}]},
        {"content": [{"token": 7, "logprob": -1.0, "top_logprobs": None}]},
        {"content": [{"token": "other", "logprob": -1.0, "top_logprobs": [{"token": "text", "logprob": -2.0}]}]},
        {"content": [{"token": "complex", "logprob": -9999.0, "top_logprobs": []}]},
        [],
        "none",
    ],
)
async def test_wrong_log_probabilities_leave_the_label_that_was_said(server: Server, logprobs: Any) -> None:
    server.replies = [says("complex", logprobs=logprobs)]
    done = await complete(planner(server, structure="none"), "route")
    assert (done.text, done.probabilities["complex"], sum(done.probabilities.values())) == ("complex", 1.0, 1.0)


TOKEN = st.text(alphabet='yesnoYN "{}:', max_size=4)
LOGPROB = st.floats(max_value=0, allow_nan=False)


@given(st.sampled_from(["yes", "no"]), st.lists(st.tuples(TOKEN, st.dictionaries(TOKEN, LOGPROB), LOGPROB), max_size=5))
def test_any_tokens_give_probabilities(said: str, rows: list[tuple[str, dict[str, float], float]]) -> None:
    tokens = [(token, {**likely, token: own}) for token, likely, own in rows]
    assert sum(read_probabilities(said, ("yes", "no"), tokens).values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("yes", "yes"),
        ('"No."', "no"),
        ("YES", "yes"),
        ("no: it is about another Velm", "no"),
        ("not at all", None),
        ("", None),
        ("The answer is yes", None),
    ],
)
def test_a_label_is_what_a_reply_begins_with(text: str, label: str | None) -> None:
    assert read_label(text, ("yes", "no")) == label


async def test_a_reply_that_says_no_label_is_degraded_and_leaves_all_open(server: Server) -> None:
    server.replies = [says("I would rather not say")]
    done = await complete(planner(server), "route")
    assert (done.text, done.degraded) == ("complex", True)
    assert set(done.probabilities.values()) == {0.25}


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        (PLAN, PLAN),
        (f"First the director.\n\n{PLAN}\n", PLAN),
        (f"```\n{PLAN}\n```", PLAN),
        (json.dumps({"output": PLAN}), PLAN),
        (f"```json\n{json.dumps({'output': PLAN}, indent=1)}\n```", PLAN),
        (f"<think>\n{{}}\n</think>\n{PLAN}", PLAN),
        ('{"output": "broken', '{"output": "broken'),
        ('{"output": "half \\ud800"}', "half ?"),
        ("", ""),
    ],
)
def test_the_output_is_found_in_a_reply(reply: str, output: str) -> None:
    assert read_output(reply) == output


@given(st.text(alphabet='{}[]":,plan \\u0`\n', max_size=80))
def test_any_reply_is_read(text: str) -> None:
    assert "\n" not in read_output(text)


async def test_a_plan_that_was_cut_off_is_replaced_by_the_question(server: Server) -> None:
    server.replies = [says("Who directed Lantern Row? * Where was {dir", finish_reason="length")]
    revelator = planner(server, structure="none")
    done = await complete(revelator, "translate_bnf")
    assert (done.text, done.degraded) == (ASKED, True)
    assert (await complete(revelator, "refine")).text == ""  # which its parser refuses


async def test_the_model_that_answered_is_noted_as_the_endpoint_reports_it(server: Server) -> None:
    Planner(server)
    with use_choice(VersionChoice()) as choice:
        await complete(planner(server, model="alias"), "route")
    assert choice.versions() == {"revelator": "m"}


@pytest.mark.parametrize(
    ("models", "reply", "said"),
    [
        ({"m": "me"}, fails(500), None),
        ({}, says("single"), None),  # no list: a question was answered
        (
            {"other": "me", "another": "me"},
            fails(404, "no model m"),
            r"404: no model m(.|\n)*models are another, other",
        ),
        ({}, fails(401, "wrong key"), r"401: wrong key(.|\n)*the key in OPENAI_API_KEY"),
    ],
)
async def test_what_is_wrong_with_an_endpoint_is_said_before_it_plans(
    server: Server, models: dict[str, str], reply: Reply, said: str | None
) -> None:
    server.models, server.replies = models, [reply]
    if said is None:
        await planner(server).check()
    else:
        with pytest.raises(RevelatorError, match=said):
            await planner(server).check()


async def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    with Server() as gone:
        pass
    with pytest.raises(Unavailable, match=r"no connection(.|\n)*is the server running"):
        await planner(gone, retries=0).check()


@pytest.mark.parametrize("wrong", [{"url": "127.0.0.1:8000"}, {"model": ""}, {"prompt": "mine"}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PlannerConfig.model_validate({"url": "http://127.0.0.1:9/v1", "model": "m", **wrong})


def make_executor(server: Server, index: Path) -> Executor:
    return Executor(planner(server), Sources.of_index(LocalRetriever(Index.open(index))), EmbeddedGenerator())


async def test_a_question_is_planned_judged_and_answered(server: Server, index: Path) -> None:
    Planner(server)
    trace = await make_executor(server, index).run(ASKED)
    assert (trace.route, trace.plan, trace.plan_source) == ("complex", PLAN, "model")
    assert (trace.answers, trace.outcome) == (["Port Velm"], "answered")
    assert trace.usage.tokens_in == 31 * trace.usage.model_calls and trace.usage.tokens_out > 0
    assert KEY not in json.dumps(trace.to_json())


async def test_a_plan_that_does_not_check_is_asked_for_at_higher_temperatures(server: Server, index: Path) -> None:
    model = Planner(server, translate_bnf='[{"ask": "Where was {2} born?"}]')
    trace = await make_executor(server, index).run(ASKED, strategy="compile")
    asked = [
        request["temperature"] for request in server.requests if "list of steps" in request["messages"][0]["content"]
    ]
    assert asked == [0.0, 0.5, 0.8, 1.0]
    assert trace.degraded and "went through the loop" in str(trace.reason)
    assert trace.answers == ["Ines Calloway"]  # of the one step that this model knows
    assert model.outputs["end"] == "yes"


async def test_a_planner_that_is_down_makes_a_question_unavailable(server: Server, index: Path) -> None:
    server.replies = [fails(503, "down")]
    with pytest.raises(Unavailable, match="503: down"):
        await make_executor(server, index).run(ASKED)


async def test_a_first_token_that_does_not_come_ends_with_the_questions_deadline(server: Server, index: Path) -> None:
    server.replies = [lambda handler: (server.release.wait(30), cuts(handler))[1]]
    executor = make_executor(server, index)
    async with asyncio.timeout(20):
        with pytest.raises(DeadlineExceeded, match="within 500 ms, its deadline") as error:
            await executor.run(ASKED, deadline_ms=500)
    assert "limits: {deadline_ms: N}" in str(error.value.hint)


async def test_a_slow_answer_exceeds_the_timeout_of_a_call(server: Server) -> None:
    server.replies = [lambda handler: (server.release.wait(30), cuts(handler))[1]]
    with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.2 s, the timeout of a call"):
        await complete(planner(server, timeout=0.2), "route")


def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-SECRÉT")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        EndpointRevelator(PlannerConfig(url="http://127.0.0.1:9/v1", model="m"))
    assert "SEC" not in str(caught.value)
